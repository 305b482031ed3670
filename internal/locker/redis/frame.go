package redis

import (
	"io"
	"strconv"
	"strings"
	"time"
)

// maxFrame is the most bytes that a part of a frame may have. Ours have a
// channel's name, or a key and one byte more.
const maxFrame = 4 << 10

// receive waits for a frame. After an error the connection is of no use.
func (s *subscription) receive(deadline time.Time) (frame, error) {
	if err := s.wire.SetReadDeadline(deadline); err != nil {
		return frame{}, err
	}
	kind, n, err := s.header()
	if err != nil {
		return frame{}, err
	}
	if kind != '*' || n != 3 {
		return frame{}, errNotSubscription
	}
	var parts [3]string
	for i := range n {
		if parts[i], err = s.part(); err != nil {
			return frame{}, err
		}
	}
	if parts[1] != s.channel {
		return frame{}, errNotSubscription
	}
	return frame{kind: parts[0], payload: parts[2]}, nil
}

// header reads the first line of a value: its kind and its number. An error
// reply is an error.
func (s *subscription) header() (kind byte, n int, err error) {
	text, err := s.r.ReadSlice('\n') // no longer than the reader's buffer
	if err != nil {
		return 0, 0, err
	}
	line, ok := strings.CutSuffix(string(text), "\r\n")
	if !ok || line == "" {
		return 0, 0, errNotSubscription
	}
	if line[0] == '-' {
		return 0, 0, replyFailure(line[1:])
	}
	n, err = strconv.Atoi(line[1:])
	if err != nil {
		return 0, 0, errNotSubscription
	}
	return line[0], n, nil
}

// part reads a string, or skips a number.
func (s *subscription) part() (string, error) {
	kind, n, err := s.header()
	switch {
	case err != nil:
		return "", err
	case kind == ':':
		return "", nil
	case kind != '$' || n < 0 || n > maxFrame:
		return "", errNotSubscription
	}
	text := make([]byte, n+len("\r\n"))
	if _, err := io.ReadFull(s.r, text); err != nil {
		return "", err
	}
	return string(text[:n]), nil
}
