// Package child runs one command for as long as a lease lasts. The command is
// the leader of a process group of its own, gets the signals that come for this
// process, and is ended with all that it has started before the lease is over.
package child

import (
	"os"
	"syscall"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Config says what to run, and for how long.
type Config struct {
	Path string   // as Find returned it
	Args []string // Args[0] is the name that the command is told
	Env  []string // all of its environment

	ValidUntil locker.Instant // the end of the lease
	KillAfter  time.Duration  // TERM comes so long before it

	// News tells of the lease. Once it is closed, the lock is not held.
	News <-chan News

	Signals *Signals

	// Say tells people what is done for the lock's sake. It must not block: the
	// command is ended by the one who says so.
	Say func(format string, args ...any)
}

// News is what is told of a lease.
type News struct {
	ValidUntil locker.Instant // it is held until then; means nothing if it is lost
	Lost       string         // empty if it is not lost, else that and why, in words
}

// Result is how a command has ended.
type Result struct {
	Code    int    // as in a shell: 128 and the signal's number if a signal has ended it
	Stopped string // why it was stopped for the lock's sake; empty if it has ended by itself

	// LostSince says why the lock was lost after the command had ended by
	// itself, while what it had left behind was being stopped.
	LostSince string
}

// Run runs the command and returns once it has ended, and all of its process
// group with it. If it was stopped for the lock's sake, whatever else descends
// from it has ended too, where it can be found (on Linux); after an end of its
// own, what has left the group is left alone.
//
// No other children may be started meanwhile. The error is a [*StartError] if
// the command could not be started, a [*LostError] if the lease does not leave
// it the time: of one that seems to be over, news are awaited for three seconds.
func Run(cfg Config) (Result, error) {
	ring, err := newAlarm()
	if err != nil {
		return Result{}, err
	}
	defer ring.close()
	if err := adoptOrphans(); err != nil {
		return Result{}, err
	}
	before := children()
	known := &warden{orders: -1}
	if os.Getpid() != 1 {
		if known, err = hireWarden(); err != nil {
			cfg.Say("what the command starts will outlive a kill -9 of this process: %v", err)
		}
	}
	defer known.dismiss()
	j := newJob()
	defer j.close()
	g := guard{killAfter: cfg.KillAfter, until: cfg.ValidUntil}
	if err := g.catchUp(cfg.News, locker.BootTime); err != nil {
		return Result{}, err
	}
	order := func(group int, at locker.Instant) {
		i := instruction{Group: int64(group), At: at}
		if len(before) == 0 { // else the warden cannot tell them from the command's
			i.Master = int64(os.Getpid())
		}
		known.order(i)
	}
	order(0, g.until) // this process may be stopped before it can tell the group
	f, err := startFamily(cfg.Path, cfg.Args, cfg.Env, j.attributes(), before, known)
	j.begin(f)
	if err != nil {
		j.end(false)
		return Result{}, startError(cfg.Args[0], err)
	}
	r := run{
		guard:   g,
		command: f, changes: f.changes, news: cfg.News, signals: cfg.Signals.C, say: cfg.Say,
		now: locker.BootTime, rings: ring.C, setAlarm: ring.set,
		job:   j,
		order: func(at locker.Instant) { order(f.leader, at) },
	}
	r.order(g.until)
	if err := r.loop(); err != nil {
		cfg.Say("%v", err) // it has been killed
	}
	known.dismiss()
	status := f.reap()
	j.end(status.Signaled())
	return r.result(status), nil
}

// newsWithin is how long news of a lease that seems to be over may take. Of a
// process that was stopped while it got the lock they wait in the connection.
const newsWithin = 3 * time.Second

// LostError says that a command was not started, as the lock is not held any
// more or not for long enough.
type LostError struct{ Why string }

func (e *LostError) Error() string { return e.Why + ": the command is not started" }

// catchUp hears news of the lease until it leaves a command the time to run.
// The error is a [*LostError].
func (g *guard) catchUp(news <-chan News, now locker.Clock) error {
	patience := time.NewTimer(newsWithin)
	defer patience.Stop()
	for {
		if at, _ := g.next(); now() < at {
			return nil
		}
		select {
		case n, open := <-news:
			switch {
			case !open:
				return &LostError{silent}
			case n.Lost != "":
				return &LostError{n.Lost}
			}
			g.renewed(n.ValidUntil)
		case <-patience.C:
			return &LostError{overdue}
		}
	}
}

// result tells how the command ended. One that was killed without having been
// told to end, and yet has ended otherwise, was sooner.
func (r *run) result(status syscall.WaitStatus) Result {
	res := Result{Code: status.ExitStatus()}
	if status.Signaled() {
		res.Code = 128 + int(status.Signal())
	}
	switch {
	case r.endedFirst:
		res.LostSince = r.guard.reason
	case r.told, status.Signaled() && status.Signal() == syscall.SIGKILL:
		res.Stopped = r.guard.reason
	}
	return res
}
