package faultproxy

import (
	"bufio"
	"strings"
	"testing"
)

func TestEveryKindOfReplyIsReadWhole(t *testing.T) {
	replies := []string{
		"+OK\r\n", "-ERR no\r\n", ":12\r\n", "_\r\n", ",1.5\r\n", "#t\r\n", "(123456789012345678901234567890\r\n",
		"$3\r\na\r\n\r\n", "$0\r\n\r\n", "$-1\r\n", "=7\r\ntxt:abc\r\n", "!5\r\nERR x\r\n",
		"*-1\r\n", "*0\r\n", "*2\r\n:1\r\n*1\r\n$1\r\na\r\n", "~1\r\n+a\r\n", "%1\r\n+a\r\n*1\r\n:1\r\n",
		">2\r\n+message\r\n$1\r\nx\r\n", "|1\r\n+ttl\r\n:1\r\n*1\r\n:7\r\n",
	}
	r := bufio.NewReader(strings.NewReader(strings.Join(replies, "")))
	for _, want := range replies {
		v, err := readValue(r)
		if err != nil || string(v.raw) != want {
			t.Fatalf("read %q, %v; want %q", v.raw, err, want)
		}
		if v.push != (want[0] == '>') {
			t.Errorf("%q: push %v", want, v.push)
		}
	}
	if r.Buffered() != 0 {
		t.Errorf("%d bytes are left", r.Buffered())
	}
}

func TestMalformedInputIsAnError(t *testing.T) {
	for _, input := range []string{"", "\n", "\r\n", "+OK\n", "$3\r\nab", "$x\r\n", "*-2\r\n", "*1\r\n", "?\r\n", "\x7fOK\r\n"} {
		if v, err := readValue(bufio.NewReader(strings.NewReader(input))); err == nil {
			t.Errorf("%q was read as %q", input, v.raw)
		}
	}
	for _, input := range []string{"", "*1\r\n:1\r\n", "*1\r\n$-1\r\n", "*1\r\n$3\r\nab", "*x\r\n"} {
		if c, _, err := readCommand(bufio.NewReader(strings.NewReader(input))); err == nil {
			t.Errorf("%q was read as %+v", input, c)
		}
	}
}

func TestPipelinedAndInlineCommandsAreReadOneByOne(t *testing.T) {
	input := "*3\r\n$3\r\nset\r\n$1\r\nk\r\n$4\r\na\r\nb\r\nPING x\r\n*1\r\n$4\r\nPing\r\n"
	r := bufio.NewReader(strings.NewReader(input))
	read := ""
	for _, want := range []string{"SET k|a\r\nb", "PING x", "PING "} {
		c, raw, err := readCommand(r)
		if got := c.Name + " " + strings.Join(c.Args, "|"); err != nil || got != want {
			t.Fatalf("read %q, %v; want %q", got, err, want)
		}
		read += string(raw)
	}
	if read != input {
		t.Errorf("the bytes read are %q, want %q", read, input)
	}
}
