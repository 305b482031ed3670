package httpapi

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/locksidecar/locksidecar/internal/locker"
)

const locksPath = "/locks/"

// keyOf returns the key that the request names: everything after /locks/,
// percent-decoded once. A '+' is a plus, and an encoded slash is a slash.
func keyOf(r *http.Request) (locker.Key, error) {
	return parseKey(strings.TrimPrefix(r.URL.EscapedPath(), locksPath))
}

func parseKey(escaped string) (locker.Key, error) {
	name, err := url.PathUnescape(escaped)
	if err != nil {
		return "", refuse("invalid_key", "the key has a '%' that begins no percent-encoded byte")
	}
	key, err := locker.ParseKey(name)
	switch {
	case errors.Is(err, locker.ErrKeyTooLong):
		return "", err
	case err != nil:
		return "", refuse("invalid_key", err.Error())
	}
	return key, nil
}

// keyForLog returns the request's key if it has one.
func keyForLog(r *http.Request) string {
	if !strings.HasPrefix(r.URL.EscapedPath(), locksPath) {
		return ""
	}
	key, _ := keyOf(r)
	return string(key)
}
