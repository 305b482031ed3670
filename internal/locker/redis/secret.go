package redis

import (
	"fmt"
	"os"
	"strings"
)

// Secret returns a user name or a password. It is called for every new
// connection, so that what has been rotated is found.
type Secret func() (string, error)

// Value is a Secret that stays as it is.
func Value(s string) Secret { return func() (string, error) { return s, nil } }

// File is a Secret that stands in a file; line breaks at its end do not count.
func File(path string) Secret {
	return func() (string, error) {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("read the credentials: %w", err)
		}
		return strings.TrimRight(string(content), "\r\n"), nil
	}
}

func (s Secret) read() (string, error) {
	if s == nil {
		return "", nil
	}
	return s()
}
