package child

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// run is a command on its way.
type run struct {
	guard   guard
	command interface {
		signal(syscall.Signal, recipients) error
		alive(recipients) bool
	}
	changes <-chan change
	news    <-chan News
	signals <-chan os.Signal
	job     *job
	say     func(format string, args ...any)

	now      locker.Clock
	rings    <-chan struct{}
	setAlarm func(locker.Instant) error
	order    func(locker.Instant) // the warden to end it then

	told       bool          // it was sent TERM for the lock's sake
	ended      bool          // the command itself
	endedFirst bool          // before it had to, for the lock's sake
	stopping   bool          // somebody at the terminal has asked it to stop
	pause      time.Duration // between two looks at those that are left
}

// How often those are looked for that are left of a command that has ended or
// was killed: first soon, then seldom, as some cannot end before their disk or
// network lets them.
const (
	firstLook = time.Millisecond
	lastLook  = 200 * time.Millisecond
)

// loop does what is due until the command has ended and nothing is left that
// has to end with it. Whatever wakes it, the clock comes first. The error says
// why the command had to be killed although nothing was wrong with the lock.
func (r *run) loop() error {
	for {
		if r.act(); r.ended && !r.left() {
			return nil
		}
		if err := r.wait(); err != nil {
			_ = r.command.signal(syscall.SIGKILL, everyone)
			return err
		}
	}
}

// wait waits for the next thing that happens, and takes it in.
func (r *run) wait() error {
	at, ok := r.guard.next()
	if r.ended || r.guard.killed {
		r.pause = min(max(2*r.pause, firstLook), lastLook)
		if look := r.now().Add(r.pause); !ok || look < at {
			at = look
		}
	}
	if err := r.setAlarm(at); err != nil {
		return fmt.Errorf("set an alarm: %w", err)
	}
	select {
	case <-r.rings:
	case n, open := <-r.news:
		r.act()
		r.hear(n, open)
	case sig := <-r.signals:
		r.act()
		r.forward(sig)
	case c := <-r.changes:
		r.act()
		r.take(c)
	case <-r.job.stops:
		r.act()
		r.stopping = true
		r.send(syscall.SIGTSTP, group)
	case <-r.job.continued:
		r.act()
		r.resume()
	}
	return nil
}

// act does what the clock demands.
func (r *run) act() {
	switch r.guard.due(r.now()) {
	case terminate:
		r.terminate()
	case kill:
		if r.guard.reason != "" && !r.ended {
			r.say("%s: the command is killed", r.guard.reason)
		}
		r.send(syscall.SIGKILL, r.concerned())
	}
}

// concerned are those that must end: all, if it is for the lock's sake.
func (r *run) concerned() recipients {
	if r.guard.reason != "" {
		return everyone
	}
	return group
}

// terminate tells them to end.
func (r *run) terminate() {
	switch {
	case r.guard.reason == "":
		r.say("the command has left processes behind: they are stopped before the lock is given back")
	case !r.ended:
		r.told = true
		r.say("%s: the command is told to end", r.guard.reason)
	}
	r.send(syscall.SIGTERM, r.concerned())
	r.send(syscall.SIGCONT, r.concerned()) // what is stopped cannot hear TERM
}

// hear takes in news of the lease.
func (r *run) hear(n News, open bool) {
	if !open {
		r.news = nil
		n.Lost = silent
	}
	if n.Lost == "" {
		r.guard.renewed(n.ValidUntil)
		r.order(r.guard.until)
	} else if r.guard.lost(n.Lost, r.now()) == terminate {
		r.terminate()
	}
}

// left tells whether processes are left that must end before we do.
func (r *run) left() bool {
	if !r.command.alive(r.concerned()) {
		return false
	}
	switch {
	case r.guard.killed: // they were being started meanwhile
		r.send(syscall.SIGKILL, r.concerned())
	case r.guard.ended(r.now()) == terminate:
		r.terminate()
	}
	return true
}

// take takes in what became of the command.
func (r *run) take(c change) {
	switch {
	case c.ended:
		r.ended, r.endedFirst, r.pause = true, r.guard.reason == "", 0
	case r.job.mayRead(c.stopped):
		r.send(syscall.SIGCONT, group)
		if r.stopping { // CONT has taken back what came while it was stopped
			r.send(syscall.SIGTSTP, group)
		}
	case r.job.stopsWith(c.stopped):
		r.job.stop()
		r.act()
		r.resume()
	}
}

// resume has a command that was stopped go on, as we do.
func (r *run) resume() {
	r.stopping = false
	r.job.foreground()
	r.send(syscall.SIGCONT, group)
}

// forward passes a signal on that came for us.
func (r *run) forward(sig os.Signal) {
	if s, ok := sig.(syscall.Signal); ok && EndsWait(s) || sig == syscall.SIGWINCH {
		r.send(s, whom(s))
	}
}

// send sends a signal. One that is not permitted, as the command has become
// another user's, leaves nothing to be done but to say so.
func (r *run) send(sig syscall.Signal, to recipients) {
	if r.ended && to == leader {
		return
	}
	if err := r.command.signal(sig, to); err != nil && !errors.Is(err, syscall.ESRCH) {
		r.say("cannot send %v to the command: %v", sig, err)
	}
}
