package faultproxy

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// readCommand reads a command, and returns it with the bytes that it was.
func readCommand(r *bufio.Reader) (Command, []byte, error) {
	line, err := readLine(r)
	if err != nil {
		return Command{}, nil, err
	}
	if line[0] != '*' {
		return commandOf(strings.Fields(string(line))), line, nil // an inline command
	}
	n, err := lengthIn(line)
	if err != nil {
		return Command{}, nil, err
	}
	raw := line
	words := make([]string, 0, max(n, 0))
	for range n {
		header, err := readLine(r)
		if err != nil {
			return Command{}, nil, err
		}
		size, err := lengthIn(header)
		if err != nil || header[0] != '$' || size < 0 {
			return Command{}, nil, fmt.Errorf("not an argument: %q", header)
		}
		raw = append(raw, header...)
		start := len(raw)
		if raw, err = readN(r, raw, size); err != nil {
			return Command{}, nil, err
		}
		words = append(words, string(raw[start:start+size]))
	}
	return commandOf(words), raw, nil
}

func commandOf(words []string) Command {
	if len(words) == 0 {
		return Command{}
	}
	return Command{Name: strings.ToUpper(words[0]), Args: words[1:]}
}

// value is something that the server sent.
type value struct {
	raw  []byte
	push bool   // a RESP3 push frame
	word string // the first element, if it is an array and that a string
}

// message tells whether a RESP2 value belongs to a subscription.
func (v value) message() bool {
	switch v.word {
	case "message", "pmessage", "smessage",
		"subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe":
		return true
	}
	return false
}

// readValue reads one value of RESP2 or RESP3, whole.
func readValue(r *bufio.Reader) (value, error) {
	line, err := readLine(r)
	if err != nil {
		return value{}, err
	}
	v := value{raw: line}
	members := 0
	switch line[0] {
	case '+', '-', ':', '_', ',', '#', '(':
		return v, nil
	case '$', '=', '!':
		size, err := lengthIn(line)
		if err != nil || size < 0 {
			return v, err
		}
		v.raw, err = readN(r, v.raw, size)
		return v, err
	case '*', '~', '>':
		members, err = lengthIn(line)
	case '%':
		members, err = lengthIn(line)
		members *= 2
	case '|': // attributes, which belong to the value behind them
		members, err = lengthIn(line)
		members = 2*members + 1
	default:
		return v, fmt.Errorf("not a reply: %q", line)
	}
	if err != nil {
		return v, err
	}
	v.push = line[0] == '>'
	for i := range members {
		member, err := readValue(r)
		if err != nil {
			return v, err
		}
		if i == 0 {
			v.word = member.text()
		}
		v.raw = append(v.raw, member.raw...)
	}
	return v, nil
}

// text returns the content of a string, and "" for other values.
func (v value) text() string {
	switch v.raw[0] {
	case '+':
		return strings.TrimSuffix(string(v.raw[1:]), "\r\n")
	case '$':
		_, content, _ := strings.Cut(string(v.raw), "\r\n")
		return strings.TrimSuffix(content, "\r\n")
	}
	return ""
}

// readLine reads up to and including a line's end; the line is not empty.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < len("+\r\n") || line[len(line)-2] != '\r' {
		return nil, fmt.Errorf("malformed line: %q", line)
	}
	return line, nil
}

// readN appends size bytes and the line's end behind them to raw.
func readN(r *bufio.Reader, raw []byte, size int) ([]byte, error) {
	start := len(raw)
	raw = append(raw, make([]byte, size+len("\r\n"))...)
	_, err := io.ReadFull(r, raw[start:])
	return raw, err
}

// lengthIn reads the number behind a line's first byte; -1 means null.
func lengthIn(line []byte) (int, error) {
	n, err := strconv.Atoi(string(line[1 : len(line)-2]))
	if err != nil || n < -1 {
		return 0, fmt.Errorf("malformed length: %q", line)
	}
	return n, nil
}
