package redis

import (
	"bytes"
	"errors"
)

const (
	// mostElements and mostBytes are far above any reply that we ask for, and so
	// is mostNested, how many arrays are within each other. The driver makes room
	// for as much as each of them announces before it reads on.
	mostElements = 1 << 16
	mostBytes    = 4 << 20
	mostNested   = 8
)

var errOversized = errors.New("the reply announces more than any of ours has")

// replyGuard reads a stream of replies along and finds what announces more
// than it can hold. Everything else that may be wrong with a reply is left to
// the driver.
type replyGuard struct {
	kind  byte // of the line that is being read; 0 before one
	count int64
	skip  int64 // bytes of a bulk string that are still to come, with its line end

	nested []int64 // how many elements are still to come, of each array that has begun
}

// feed takes in the next bytes of the stream.
func (g *replyGuard) feed(p []byte) error {
	for len(p) > 0 {
		if g.skip > 0 {
			n := min(g.skip, int64(len(p)))
			p = p[n:]
			if g.skip -= n; g.skip == 0 {
				g.complete()
			}
			continue
		}
		if g.kind == 0 {
			g.kind, g.count = p[0], 0
			p = p[1:]
			continue
		}
		if !announces(g.kind) {
			end := bytes.IndexByte(p, '\n')
			if end < 0 {
				return nil
			}
			g.kind, p = 0, p[end+1:]
			g.complete()
			continue
		}
		c := p[0]
		p = p[1:]
		switch {
		case c >= '0' && c <= '9':
			if g.count = 10*g.count + int64(c-'0'); g.count > g.most() {
				return errOversized
			}
		case c == '-': // nothing follows
			g.kind = '+'
		case c == '\n':
			if err := g.begin(); err != nil {
				return err
			}
			g.kind = 0
		}
	}
	return nil
}

// begin takes in the line that announces what follows.
func (g *replyGuard) begin() error {
	n := g.count
	switch g.kind {
	case '$', '=', '!':
		g.skip = n + 2
		return nil
	case '%', '|':
		n *= 2
	}
	if n == 0 {
		g.complete()
		return nil
	}
	if g.nested = append(g.nested, n); len(g.nested) > mostNested {
		return errOversized
	}
	return nil
}

// complete takes in that a value has come to its end.
func (g *replyGuard) complete() {
	for last := len(g.nested) - 1; last >= 0; last-- {
		if g.nested[last]--; g.nested[last] > 0 {
			return
		}
		g.nested = g.nested[:last]
	}
}

// announces tells whether a line of the kind says how much follows.
func announces(kind byte) bool { return bytes.IndexByte([]byte("*%~>|$=!"), kind) >= 0 }

func (g *replyGuard) most() int64 {
	if g.kind == '$' || g.kind == '=' || g.kind == '!' {
		return mostBytes
	}
	return mostElements
}
