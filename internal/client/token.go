package client

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxTokenBytes keeps a path to something endless from filling the memory.
const maxTokenBytes = 64 << 10

// readToken returns what the file holds at this moment, without one line break
// at its end, as the sidecar itself reads it.
func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", &TokenError{err}
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxTokenBytes+1))
	if err != nil {
		return "", &TokenError{err}
	}
	token := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	switch {
	case len(content) > maxTokenBytes:
		err = fmt.Errorf("%s is longer than %d bytes", path, maxTokenBytes)
	case token == "":
		err = fmt.Errorf("%s is empty", path)
	case strings.ContainsFunc(token, func(r rune) bool { return r < ' ' || r == 0x7f }):
		err = errors.New(path + " has a line break or control character in it, which no token has")
	}
	if err != nil {
		return "", &TokenError{err}
	}
	return token, nil
}
