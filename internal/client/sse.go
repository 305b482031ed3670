package client

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxEvent keeps a stream that is none of ours from filling the memory; an
// event of ours has less than 4 KiB.
const maxEvent = 64 << 10

var errEventTooLong = errors.New("an event is too long")

// readEvent reads the next event of a text/event-stream that has data:
// comments, retry times and ids are passed over. An event that the end of the
// stream cuts short is none.
func readEvent(r *bufio.Reader) (kind string, data []byte, err error) {
	kind = "message"
	for size := 0; ; {
		line, err := readLine(r)
		if err != nil {
			return "", nil, err
		}
		if size += len(line); size > maxEvent {
			return "", nil, errEventTooLong
		}
		if len(line) == 0 {
			if data != nil {
				return kind, data, nil
			}
			kind, size = "message", 0
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			kind = string(value)
		case "data":
			if data != nil {
				data = append(data, '\n')
			}
			data = append(append([]byte{}, data...), value...)
		case "": // a comment
			size = 0
		}
	}
}

// readLine returns one line without its end, valid until the next call.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err == nil {
		return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
	}
	whole := bytes.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(whole) > maxEvent {
			return nil, errEventTooLong
		}
		line, err = r.ReadSlice('\n')
		whole = append(whole, line...)
	}
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, err
	}
	return bytes.TrimSuffix(whole[:len(whole)-1], []byte("\r")), nil
}
