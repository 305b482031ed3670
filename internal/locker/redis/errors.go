package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// errUnreadable stands for an answer that could not be understood. Its words
// are not passed on: they may quote another holder's token.
var errUnreadable = errors.New("the answer could not be read")

// replyError is an error reply of Redis, cut to what cannot hold a secret.
type replyError string

func (e replyError) Error() string { return string(e) }

// verdict says what an error reply means.
type verdict struct {
	reason  locker.StoreReason
	certain bool // the script did nothing of what it was asked to do
	redial  bool // the connection leads to the wrong place, or for the wrong user
	detour  detour
}

// replyTable maps the beginning of an error reply to its meaning. The longest
// match counts. What is not listed is unknown: it may come from the midst of a
// script.
var replyTable = map[string]verdict{
	"LOADING":     {reason: locker.StoreUnavailable, certain: true, detour: later},
	"MASTERDOWN":  {reason: locker.StoreUnavailable, certain: true, redial: true, detour: demoted},
	"READONLY":    {reason: locker.StoreUnavailable, certain: true, redial: true, detour: demoted},
	"CLUSTERDOWN": {reason: locker.StoreUnavailable, certain: true, detour: later},
	"TRYAGAIN":    {reason: locker.StoreUnavailable, certain: true, detour: later},
	"MOVED":       {reason: locker.StoreUnavailable, certain: true, detour: moved},
	"ASK":         {reason: locker.StoreUnavailable, certain: true, detour: asked},
	"CROSSSLOT":   {reason: locker.StoreUnavailable, certain: true},
	"BUSY":        {reason: locker.StoreBusy, certain: true},
	"NOREPLICAS":  {reason: locker.StoreWriteRefused, certain: true},
	"OOM":         {reason: locker.StoreWriteRefused, certain: true},
	"MISCONF":     {reason: locker.StoreWriteRefused, certain: true},
	"NOAUTH":      {reason: locker.StoreAuthFailed, certain: true, redial: true},
	"WRONGPASS":   {reason: locker.StoreAuthFailed, certain: true, redial: true},
	"NOPERM":      {reason: locker.StoreAuthFailed, certain: true},
	"NOSCRIPT":    {reason: locker.StoreFailed, certain: true},
	"EXECABORT":   {reason: locker.StoreFailed, certain: true},

	"ERR unknown command":               {reason: locker.StoreFailed, certain: true},
	"ERR max number of clients reached": {reason: locker.StoreUnavailable, certain: true, redial: true},
	"ERR AUTH":                          {reason: locker.StoreAuthFailed, certain: true, redial: true},

	// Within a script; the latter from Redis 7.2 on.
	"ERR The user executing the script": {reason: locker.StoreAuthFailed, certain: true},
	"ERR ACL failure in script":         {reason: locker.StoreAuthFailed, certain: true},

	// A name that the script has met is on its way to another server of a
	// cluster. In ours nothing has been written by then but the line. The latter
	// until Redis 7.0.
	"ERR Script attempted to":     {reason: locker.StoreUnavailable, certain: true, detour: later},
	"ERR Lua script attempted to": {reason: locker.StoreUnavailable, certain: true, detour: later},

	// Our own scripts' replies.
	"BADFENCE": {reason: locker.StoreFailed, certain: true},
	"NORECORD": {reason: locker.StoreFailed, certain: true},
	"GUARDS":   {reason: locker.StoreFailed, certain: true},
	"NOGUARD":  {reason: locker.StoreAuthFailed, certain: true},
	"NOGRANT":  {reason: locker.StoreFailed},
}

// readReply finds the meaning of an error reply.
func readReply(text string) verdict {
	text = withoutPosition(text)
	found, v := "", verdict{reason: locker.StoreFailed}
	for prefix, meaning := range replyTable {
		if len(prefix) > len(found) && strings.HasPrefix(text, prefix) {
			found, v = prefix, meaning
		}
	}
	return v
}

// forbidden tells whether an error reply is that a command is not for us,
// whenever we ask. A server that has none of the name says so, and some who
// offer Redis as a service have words of their own, of no kind that we know.
func forbidden(text string) bool {
	v := readReply(text)
	return strings.HasPrefix(text, "NOPERM") || strings.HasPrefix(text, "ERR ") && v.reason == locker.StoreFailed
}

// withoutPosition takes off what Redis before 7.0 puts in front of an error
// that a command met within a script, as in
// "ERR Error running script (call to f_…): @user_script:12: @user_script: 12: -OOM …",
// and puts ERR in front of one without a code. What the script itself returns
// may have that already.
func withoutPosition(text string) string {
	const position = "@user_script:"
	if !strings.HasPrefix(strings.TrimPrefix(text, "ERR "), position) && !strings.HasPrefix(text, "ERR Error running script") {
		return text
	}
	at := strings.LastIndex(text, position)
	if at < 0 {
		return text
	}
	text = strings.TrimLeft(text[at+len(position):], " 0123456789:-")
	if code, _, _ := strings.Cut(text, " "); code != strings.ToUpper(code) {
		text = "ERR " + text
	}
	return text
}

// replyFailure translates an error reply.
func replyFailure(text string) error {
	v := readReply(text)
	return &locker.StoreError{Reason: v.reason, Certain: v.certain, Err: replyError(withoutArguments(text))}
}

// withoutArguments cuts an error reply where Redis begins to quote what it was
// sent, for among that are tokens and passwords.
func withoutArguments(text string) string {
	const longest = 200
	if cut := strings.IndexAny(text, "'`\"\r\n"); cut >= 0 {
		text = strings.TrimSpace(text[:cut]) + " …"
	}
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + " …"
	}
	return text
}

// asReply returns the text of an error reply, if that is what err is.
func asReply(err error) (text string, ok bool) {
	if err == nil {
		return "", false
	}
	var reply goredis.Error
	if errors.As(err, &reply) && !errors.Is(err, goredis.Nil) {
		return reply.Error(), true
	}
	return "", false
}

// callFailure translates the driver's error for a call. sent tells whether
// anything of it may have reached the server.
func callFailure(err error, sent bool) error {
	if text, ok := asReply(err); ok {
		return replyFailure(text)
	}
	switch {
	case errors.Is(err, goredis.ErrPoolTimeout), errors.Is(err, goredis.ErrPoolExhausted):
		return &locker.StoreError{Reason: locker.StoreBusy, Certain: true, Err: err}
	case isTimeout(err):
		return &locker.StoreError{Reason: locker.StoreTimeout, Certain: !sent, Err: errors.New("no answer in time")}
	case isTransport(err):
		return &locker.StoreError{Reason: locker.StoreBroken, Certain: !sent, Err: err}
	}
	return &locker.StoreError{Reason: locker.StoreBroken, Certain: !sent, Err: errUnreadable}
}

// connectFailure translates an error from before a connection was ready. It is
// always certain, for no request had been sent.
func connectFailure(err error) *locker.StoreError {
	var failure *locker.StoreError
	if errors.As(err, &failure) {
		return failure
	}
	if text, ok := asReply(err); ok {
		reason := readReply(text).reason
		if reason == locker.StoreFailed {
			reason = locker.StoreUnavailable
		}
		return &locker.StoreError{Reason: reason, Certain: true, Err: fmt.Errorf("connect: %w", replyError(withoutArguments(text)))}
	}
	return &locker.StoreError{Reason: locker.StoreUnavailable, Certain: true, Err: fmt.Errorf("connect: %w", err)}
}

// isTimeout tells whether err is that somebody stopped waiting.
func isTimeout(err error) bool {
	var netErr net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled) || errors.As(err, &netErr) && netErr.Timeout()
}

// isTransport tells whether err is of the connection, and so holds none of
// what was sent over it.
func isTransport(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed)
}
