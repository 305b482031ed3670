package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/locksidecar/locksidecar/internal/child"
	"github.com/locksidecar/locksidecar/internal/client"
	"github.com/locksidecar/locksidecar/internal/locker"
)

const (
	// The default of --kill-after, and the greatest. After a third of the lease
	// the first renewal is due: it must have the time to be repeated before TERM.
	killAfterDefault = 6 // parts of the lease, and in any case
	killAfterLongest = 10 * time.Second
	killAfterMost    = 3 // parts of the lease

	// releaseWithin bounds how long the end of exec waits for the confirmation
	// that the lock is free. A sidecar answers within its STORE_TIMEOUT.
	releaseWithin = 3 * time.Second
)

// execution is one run of exec.
type execution struct {
	key       string
	args      []string // CMD
	queue     queueing
	conflict  int            // exit code if the lock is not to be had
	killAfter *time.Duration // nil for the default
}

// run takes the lock, runs CMD and gives the lock back. Its error carries the
// exit code.
func (x *execution) run(stderr io.Writer, open func(stderr io.Writer) (lockSource, error)) error {
	path, err := child.Find(x.args[0])
	if err != nil { // it need not wait for that
		return asCoded(err)
	}
	signals := child.CatchSignals()
	defer signals.Stop()
	source, err := open(stderr)
	if err != nil {
		return err
	}
	defer source.close()
	lock, err := x.take(source, signals)
	if err != nil {
		if exitCode(err) == exitNotAcquired {
			return &codedError{code: x.conflict, err: err}
		}
		return err
	}
	killAfter, err := x.killAfterOf(lock.about().ttl)
	if err != nil {
		_ = releaseBounded(lock, true) // it ends with us in any case
		return err
	}
	people := &teller{w: stderr, key: x.key}
	defer people.finish()
	result, err := x.runUnder(lock, child.Config{
		Path: path, Args: x.args, Env: x.environment(lock.about()),
		KillAfter: killAfter, Signals: signals, Say: people.tell,
	})
	if err != nil {
		_ = releaseBounded(lock, true) // nothing was done under it
		return x.notStarted(err)
	}
	return x.conclude(result, releaseBounded(lock, false), people.tell)
}

// take takes the lock, unless a signal ends the wait.
func (x *execution) take(source lockSource, signals *child.Signals) (heldLock, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	over := make(chan struct{})
	var listening sync.WaitGroup
	listening.Go(func() {
		for {
			select {
			case sig := <-signals.C:
				if number, ok := sig.(syscall.Signal); ok && child.EndsWait(sig) {
					cancel(signalError{number})
					return
				}
			case <-over:
				return
			}
		}
	})
	lock, err := x.queue.take(ctx, source)
	close(over)
	listening.Wait()
	if ctx.Err() != nil && err == nil {
		_ = releaseBounded(lock, true) // the signal came together with the lock
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	return lock, err
}

// runUnder runs CMD for as long as it may hold the lock.
func (x *execution) runUnder(lock heldLock, cfg child.Config) (child.Result, error) {
	ctx, stop := context.WithCancel(context.Background())
	news := make(chan child.News)
	var telling sync.WaitGroup
	telling.Go(func() {
		defer close(news)
		for {
			n, err := lock.next(ctx)
			if err != nil {
				return
			}
			told := child.News{ValidUntil: n.validUntil, Lost: lossWords(n.lost)}
			select {
			case news <- told:
			case <-ctx.Done():
				return
			}
		}
	})
	cfg.ValidUntil, cfg.News = lock.about().validUntil, news
	result, err := child.Run(cfg)
	stop()
	telling.Wait()
	return result, err
}

// conclude turns CMD's end and that of the lock into the exit code.
func (x *execution) conclude(result child.Result, released error, say func(string, ...any)) error {
	if result.Stopped != "" {
		return exitWith(exitLost) // everything has been said
	}
	var refused *client.RefusedError
	switch {
	case result.LostSince == lossWords(locker.CauseTaken), result.LostSince == lossWords(locker.CauseGone):
		// It is found out by a renewal, which may have been long after.
		say("%s, perhaps before the command had ended; its exit code was %d", result.LostSince, result.Code)
		return exitWith(exitLost)
	case result.LostSince != "":
		say("%s, after the command had ended", result.LostSince)
	case released == nil:
	case errors.As(released, &refused) && (refused.Code == "lost" || refused.Code == "not_held"):
		why := lossWords(locker.Cause(refused.Cause))
		if why == "" {
			why = "the lock is lost: the sidecar does not know of it any more"
		}
		say("%s, before the command had ended; its exit code was %d", why, result.Code)
		return exitWith(exitLost)
	default:
		say("the release was not confirmed, so the lock may be free only at the end of its lease: %v", released)
	}
	return exitWith(result.Code)
}

// releaseBounded gives the lock back.
func releaseBounded(lock heldLock, freeNow bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseWithin)
	defer cancel()
	return lock.release(ctx, freeNow)
}

// environment is ours, and what CMD is to know of the lock.
func (x *execution) environment(lock lockInfo) []string {
	const key, fence = "LOCK_KEY=", "LOCK_FENCING_TOKEN="
	var env []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, key) && !strings.HasPrefix(variable, fence) {
			env = append(env, variable)
		}
	}
	return append(env, key+x.key, fence+strconv.FormatInt(lock.fence, 10))
}

// checkKillAfter refuses a --kill-after that a --ttl has no room for.
func (x *execution) checkKillAfter(ttl *time.Duration) error {
	if ttl == nil {
		return nil
	}
	_, err := x.killAfterOf(*ttl)
	return err
}

// killAfterOf returns the time from TERM to KILL under a lease.
func (x *execution) killAfterOf(ttl time.Duration) (time.Duration, error) {
	if x.killAfter == nil {
		return min(ttl/killAfterDefault, killAfterLongest), nil
	}
	if *x.killAfter > ttl/killAfterMost {
		return 0, usageError("--kill-after %s is more than a third of the lease, which is %s: a renewal must have the time to be tried again before the command is stopped",
			readable(*x.killAfter), readable(ttl))
	}
	return *x.killAfter, nil
}

// notStarted gives the reason why CMD was not started its exit code.
func (x *execution) notStarted(err error) error {
	var lost *child.LostError
	if errors.As(err, &lost) {
		return &codedError{code: exitLost, err: fmt.Errorf("%s: %w", x.key, err)}
	}
	return asCoded(err)
}

// asCoded gives CMD's failure to start its exit code.
func asCoded(err error) error {
	var start *child.StartError
	if errors.As(err, &start) {
		return &codedError{code: start.Code, err: err}
	}
	return err
}

// causeReleased stands beside the causes of a loss: somebody else has given the
// lock back.
const causeReleased locker.Cause = "released"

// lossWords says that the lock was lost, and how; nothing if it was not.
func lossWords(cause locker.Cause) string {
	const lost = "the lock is lost: "
	switch cause {
	case "":
		return ""
	case locker.CauseExpired:
		return "the lock has not been renewed in time"
	case locker.CauseTaken:
		return lost + "somebody else has it"
	case locker.CauseGone:
		return lost + "it has vanished from the store"
	case locker.CauseMaxHold:
		return "the lock was held as long as it may be"
	case locker.CauseShutdown:
		return lost + "the sidecar is going"
	case causeReleased:
		return lost + "somebody else has given it back"
	}
	return lost + string(cause)
}
