// Command worker holds a lock while it works, and stops when it is lost.
//
//	worker KEY [STEPS]
//
// The lock is bound to the connection: if this process ends, in whatever way,
// the lock is free at once. Nothing but the standard library is used.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// ErrLost is why a context is over whose lock is lost.
var ErrLost = errors.New("the lock is lost")

// errNotAcquired is a certain no.
var errNotAcquired = errors.New("not acquired")

// Hold takes the lock and calls work with a context that is over as soon as
// the lock is lost. The lock is given back when work returns.
func Hold(ctx context.Context, base, key string, form url.Values, work func(ctx context.Context, fence int64) error) error {
	connection, release := context.WithCancel(ctx)
	defer release()
	form.Set("bind", "connection")
	r, err := http.NewRequestWithContext(connection, http.MethodPost, base+"/locks/"+url.PathEscape(key), strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusCreated && answer.StatusCode != http.StatusOK {
		var problem struct{ Code string }
		_ = json.NewDecoder(answer.Body).Decode(&problem) // the status says enough
		return fmt.Errorf("%w: %d %s", errNotAcquired, answer.StatusCode, problem.Code)
	}
	fence, err := strconv.ParseInt(answer.Header.Get("Lock-Fencing-Token"), 10, 64)
	if err != nil {
		return err
	}

	held, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		lose(fmt.Errorf("%w: %v", ErrLost, follow(bufio.NewScanner(answer.Body), lose)))
	}()
	err = work(held, fence)
	release()
	<-followed
	return err
}

// follow reads events until the lock is held no more, and says why. While it
// waits for one, a timer ends what the last one has said about validity.
func follow(stream *bufio.Scanner, lose context.CancelCauseFunc) error {
	expiry := time.AfterFunc(time.Hour, func() { lose(fmt.Errorf("%w: no renewal was heard of", ErrLost)) })
	defer expiry.Stop()
	event := ""
	for stream.Scan() {
		if name, ok := strings.CutPrefix(stream.Text(), "event: "); ok {
			event = name
		}
		data, ok := strings.CutPrefix(stream.Text(), "data: ")
		if !ok {
			continue
		}
		var told struct {
			ValidFor int64 `json:"valid_for_ms"`
			Cause    string
		}
		if err := json.Unmarshal([]byte(data), &told); err != nil {
			return err
		}
		if event == "lost" {
			return errors.New(told.Cause)
		}
		expiry.Reset(time.Duration(told.ValidFor) * time.Millisecond)
	}
	return errors.New("the stream has ended")
}

func main() {
	steps := 1000
	if len(os.Args) > 2 {
		steps, _ = strconv.Atoi(os.Args[2])
	}
	base := os.Getenv("LOCKSIDECAR_URL")
	if base == "" {
		base = "http://localhost:5625"
	}
	err := Hold(context.Background(), base, os.Args[1], url.Values{"wait": {"30s"}, "ttl": {"10s"}, "note": {"worker"}},
		func(ctx context.Context, fence int64) error {
			fmt.Println("held", fence)
			for range steps {
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(50 * time.Millisecond): // a piece of work
				}
			}
			fmt.Println("done")
			return nil
		})
	switch {
	case errors.Is(err, ErrLost):
		fmt.Println("lost:", err)
		os.Exit(76)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(75)
	}
}
