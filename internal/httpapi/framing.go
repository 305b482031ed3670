package httpapi

import (
	"bytes"
	"math"
	"strconv"
)

// framing reads along with net/http and finds the requests about whose end two
// parsers could disagree, which is how one request is smuggled inside another.
// net/http refuses many of them and mends the others in silence: it drops a
// Content-Length beside a Transfer-Encoding, joins folded lines, takes a bare
// LF for a line end, and makes one of two equal lengths. By the time a handler
// runs, nothing of that can be seen any more.
type framing struct {
	phase   framingPhase
	partial []byte // a line whose end has not been read
	body    int64  // bytes of the body still to come
	problem string // the first that was found

	http10, length, encoding bool // of the head that is being read
}

type framingPhase int

const (
	framingBetween framingPhase = iota // before a request
	framingHead
	framingBody
	framingOver // the connection ends with this request: no more heads
)

// feed takes in what was read next.
func (f *framing) feed(p []byte) {
	for len(p) > 0 && f.phase != framingOver {
		if f.phase == framingBody {
			n := min(int64(len(p)), f.body)
			p, f.body = p[n:], f.body-n
			if f.body == 0 {
				f.phase = framingBetween
			}
			continue
		}
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			f.partial = append(f.partial, p...)
			return
		}
		line := p[:end]
		if len(f.partial) > 0 {
			f.partial = append(f.partial, line...)
			line = f.partial
		}
		f.line(line)
		f.partial, p = f.partial[:0], p[end+1:]
	}
}

// quiet tells whether all that was read belongs to requests that were read to
// their end.
func (f *framing) quiet() bool { return f.phase == framingBetween && len(f.partial) == 0 }

// begun returns how much of a request's first line has been read; 0 between
// requests.
func (f *framing) begun() int {
	if f.phase != framingBetween {
		return math.MaxInt
	}
	return len(f.partial)
}

// line takes in one line without its LF.
func (f *framing) line(line []byte) {
	line, terminated := bytes.CutSuffix(line, []byte("\r"))
	if f.phase == framingBetween {
		if len(line) == 0 {
			return // net/http passes over these too
		}
		f.phase, f.body = framingHead, 0
		f.http10 = bytes.HasSuffix(line, []byte("HTTP/1.0"))
		f.length, f.encoding = false, false
	} else if len(line) == 0 {
		f.headEnd()
	} else {
		f.header(line)
	}
	if !terminated {
		f.found("a line of the head ends in a bare LF")
	}
}

func (f *framing) header(line []byte) {
	if line[0] == ' ' || line[0] == '\t' {
		f.found("a header is folded over two lines")
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	switch {
	case bytes.EqualFold(name, []byte("Content-Length")):
		f.once(&f.length, "Content-Length")
		n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 63)
		if err != nil {
			f.found("Content-Length is not a number")
		}
		f.body = int64(n)
	case bytes.EqualFold(name, []byte("Transfer-Encoding")):
		f.once(&f.encoding, "Transfer-Encoding")
	}
}

func (f *framing) headEnd() {
	switch {
	case f.encoding && f.length:
		f.found("Content-Length together with Transfer-Encoding")
	case f.encoding && f.http10:
		f.found("Transfer-Encoding in an HTTP/1.0 request")
	}
	switch {
	case f.encoding:
		f.phase = framingOver
	case f.body > 0:
		f.phase = framingBody
	default:
		f.phase = framingBetween
	}
}

func (f *framing) once(seen *bool, name string) {
	if *seen {
		f.found("more than one " + name)
	}
	*seen = true
}

func (f *framing) found(problem string) {
	if f.problem == "" {
		f.problem = problem
	}
}
