package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/locksidecar/locksidecar/internal/client"
	"github.com/locksidecar/locksidecar/internal/locker"
)

// Exit codes, the same for every command; 0 is success.
const (
	exitFailure       = 1   // it ran and could not go on
	exitSettings      = 2   // settings that cannot be used
	exitUsage         = 64  // a command line that cannot be used (EX_USAGE)
	exitUnavailable   = 69  // no sidecar, no store, or they refuse us (EX_UNAVAILABLE)
	exitNotAcquired   = 75  // the lock is not ours (EX_TEMPFAIL)
	exitLost          = 76  // the lock was ours and was lost
	exitNotExecutable = 126 // CMD cannot be run, as in a shell
	exitNotFound      = 127 // CMD is not there, as in a shell
	exitSignal        = 128 // and the signal's number
)

// exitCodes is the table that every --help and docs/commands.md show.
var exitCodes = []struct{ code, meaning string }{
	{"0", "done; status: held"},
	{"N", "exec: whatever CMD has ended with"},
	{"128+n", "ended by signal n; exec: CMD was"},
	{"64", "the command line cannot be used"},
	{"69", "the sidecar or its store is unavailable, or does not let us in"},
	{"75", "the lock is not ours: held by another, not held here, or the wait is over"},
	{"76", "the lock was ours and was lost; exec has stopped CMD, or not started it"},
	{"126, 127", "exec: CMD cannot be run, was not found"},
	{"1, 2", "it failed for another reason; the settings cannot be used"},
}

// codedError ends the program with a code.
type codedError struct {
	code int
	err  error // may be nil
	said bool  // the user knows already
}

func (e *codedError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *codedError) Unwrap() error { return e.err }

// exitWith returns an error that ends the program with the code, and with no
// further words; nil for 0.
func exitWith(code int) error {
	if code == 0 {
		return nil
	}
	return &codedError{code: code, said: true}
}

// usageError says what is wrong with the command line.
func usageError(format string, args ...any) error {
	return &codedError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// signalError says which signal has ended a command.
type signalError struct{ signal syscall.Signal }

func (e signalError) Error() string { return "ended by signal: " + e.signal.String() }

// exitCode returns the code that the program ends with after err.
func exitCode(err error) int {
	var (
		coded       *codedError
		signal      signalError
		refused     *client.RefusedError
		unreachable *client.UnreachableError
		token       *client.TokenError
		held        *locker.HeldError
		lost        *locker.LostError
		store       *locker.StoreError
	)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &signal):
		return exitSignal + int(signal.signal)
	case errors.As(err, &refused):
		return refusalCode(refused)
	case errors.Is(err, client.ErrStreamEnded):
		return exitLost
	case errors.As(err, &unreachable), errors.As(err, &token), errors.Is(err, context.DeadlineExceeded):
		return exitUnavailable
	// What a command is told that asks the store itself.
	case errors.As(err, &held):
		return exitNotAcquired
	case errors.As(err, &lost):
		return exitLost
	case errors.As(err, &store), errors.Is(err, locker.ErrKeyConflict):
		return exitUnavailable
	}
	return exitFailure
}

// refusalCode sorts the problems of docs/problems.md. 75 must be what a cron
// job may take for "somebody else is at it": whatever an operator has to look
// at is 69 instead.
func refusalCode(e *client.RefusedError) int {
	switch e.Code {
	case "held", "queued", "wait_timeout", "owner_busy", "owner_mismatch", "parameter_mismatch", "not_held":
		return exitNotAcquired
	case "lost":
		return exitLost
	case "invalid_request", "caller_gone", "not_found", "method_not_allowed", "":
		// None of these is the command line's fault: something between us and
		// the sidecar, or another version of it, is.
		return exitUnavailable
	}
	if strings.HasPrefix(e.Code, "invalid_") || e.Code == "body_too_large" || e.Code == "unsupported_media_type" {
		return exitUsage
	}
	return exitUnavailable
}

// unavailable is an error of ours for what cannot be reached or used now.
func unavailable(format string, args ...any) error {
	return &codedError{code: exitUnavailable, err: fmt.Errorf(format, args...)}
}

// explain says on standard error why the command has ended.
func explain(stderr io.Writer, command *cobra.Command, err error) {
	var coded *codedError
	if err == nil || errors.As(err, &coded) && coded.said {
		return
	}
	fmt.Fprintf(stderr, "%s: %s\n", command.CommandPath(), err)
	if hint := hintFor(err); hint != "" {
		fmt.Fprintln(stderr, hint)
	}
	if exitCode(err) == exitUsage {
		fmt.Fprintf(stderr, "Try: %s --help\n", command.CommandPath())
	}
}

// hintFor says what to look at.
func hintFor(err error) string {
	var (
		refused     *client.RefusedError
		unreachable *client.UnreachableError
	)
	switch {
	case errors.As(err, &unreachable) && errors.Is(err, os.ErrPermission):
		return "Run as the sidecar's user or group: its socket has mode 0660."
	case errors.As(err, &unreachable) && !unreachable.Asked:
		return "Is it running, and does it listen there? The place is --url, else $LOCKSIDECAR_URL, else " + client.DefaultURL + "\n" +
			"(the sidecar's own setting is LISTEN). To wait until it is there: locksidecar wait --max 30s"
	case errors.As(err, &unreachable):
		return "What was asked may have been carried out. Its log tells more, if it is the sidecar that listens there."
	case errors.As(err, &refused):
		switch refused.Code {
		case "unauthorized":
			return "Name the file that holds the sidecar's API token by --token-file or $LOCKSIDECAR_API_TOKEN_FILE."
		case "forbidden_host":
			return "Ask it at 127.0.0.1 or localhost, or add the host to the sidecar's ALLOWED_HOSTS."
		case "held", "queued", "wait_timeout", "not_held":
			return whoHolds(refused)
		case "owner_mismatch":
			return "Give the handle of your own grant: --owner or --fencing-token."
		}
	}
	return ""
}
