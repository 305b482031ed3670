package fencing

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// ObjectStore is a small stand-in for an object store that takes the
// preconditions of HTTP on writes, as the large ones do: If-Match with the
// ETag that was read, or If-None-Match: * for an object that must be new.
type ObjectStore struct {
	mu       sync.Mutex
	objects  map[string]object
	versions int
}

type object struct {
	etag string
	data string
}

// ServeHTTP answers GET and PUT. A precondition that does not hold is 412.
func (s *ObjectStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the writer has gone: nothing is written
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	current, exists := s.objects[r.URL.Path]
	switch r.Method {
	case http.MethodGet:
		if !exists {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("ETag", current.etag)
		_, _ = io.WriteString(w, current.data)
	case http.MethodPut:
		match := r.Header.Get("If-Match")
		if match != "" && (!exists || match != current.etag) || exists && r.Header.Get("If-None-Match") == "*" {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		if s.objects == nil {
			s.objects = make(map[string]object)
		}
		s.versions++
		s.objects[r.URL.Path] = object{etag: fmt.Sprintf(`"%d"`, s.versions), data: string(body)}
		w.WriteHeader(http.StatusOK)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// ReadObject returns an object and its ETag, which is empty if there is none.
func ReadObject(ctx context.Context, url string) (data, etag string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", "", err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", "", err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusNotFound:
		return "", "", nil
	case http.StatusOK:
		all, err := io.ReadAll(answer.Body)
		return string(all), answer.Header.Get("ETag"), err
	}
	return "", "", fmt.Errorf("read: %s", answer.Status)
}

// WriteObject replaces the version of the object that was read, or creates it
// if there was none. If another holder has written since: ErrStale.
func WriteObject(ctx context.Context, url, data, etag string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(data))
	if err != nil {
		return err
	}
	if etag == "" {
		r.Header.Set("If-None-Match", "*")
	} else {
		r.Header.Set("If-Match", etag)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusPreconditionFailed:
		return ErrStale
	}
	return fmt.Errorf("write: %s", answer.Status)
}
