package faultproxy

import (
	"bytes"
	"time"
)

// Connect is what happens to a connection when it is opened.
type Connect int

const (
	ConnectPass      Connect = iota
	ConnectReset             // reset at once (closed, on a Unix socket)
	ConnectBlackHole         // stays open; nothing is passed on, nothing comes back
)

// Action is what happens to one command and its reply. The fields combine;
// the zero Action passes both on. What is behind the command on its
// connection, or behind the reply, waits with it: a connection keeps order.
type Action struct {
	// Reset resets the connection; the command is not passed on.
	Reset bool

	// BlackHole passes on neither this command nor any behind it, and leaves
	// the connection open.
	BlackHole bool

	// RequestDelay and Hold keep the command back: for a time, and until the
	// channel is closed. It is passed on then even if the client has left.
	RequestDelay time.Duration
	Hold         <-chan struct{}

	// Repeat passes the command on twice. The client sees one reply.
	Repeat Repeat

	// ReplyDelay keeps the reply back.
	ReplyDelay time.Duration

	// LoseReply closes the client's connection when the reply has arrived.
	LoseReply bool

	// SwallowReply drops the reply and leaves the connection open, so that
	// the next reply comes in its place.
	SwallowReply bool

	// Replace returns the bytes that the client gets for the reply.
	Replace func(reply []byte) []byte

	// BytesPerSecond limits the speed of the command and of its reply; 0 does
	// not.
	BytesPerSecond int
}

// Repeat says whether and how a command is passed on a second time.
type Repeat int

const (
	NoRepeat        Repeat = iota
	RepeatInPlace          // right behind the first, on the same connection
	RepeatElsewhere        // on a new connection, as the default user, in database 0, at the same time
)

// Garble is a [Action.Replace] that makes the type of the reply one that does
// not exist and spoils its text.
func Garble(reply []byte) []byte {
	garbled := bytes.Map(func(r rune) rune {
		if r == '\r' || r == '\n' {
			return r
		}
		return r ^ 0x55
	}, reply)
	garbled[0] = '\x7f'
	return garbled
}

// HugeBulk is a [Action.Replace] that announces a string of 512 MB and sends
// the reply as its beginning.
func HugeBulk(reply []byte) []byte {
	return append([]byte("$536870912\r\n"), reply...)
}

// PushFirst is a [Action.Replace] that puts a RESP3 push frame, which nobody
// has asked for, before the reply.
func PushFirst(reply []byte) []byte {
	return append([]byte(">2\r\n$10\r\ninvalidate\r\n*1\r\n$3\r\nkey\r\n"), reply...)
}

// Truncate is a [Action.Replace] that sends only the first half of the reply.
func Truncate(reply []byte) []byte { return reply[:len(reply)/2] }
