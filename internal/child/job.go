package child

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// job is the command as a job at a terminal: in its foreground or not, stopped
// or not. Where a shell waits for us, it has to see us stop when the command
// stops.
type job struct {
	terminal  *terminal
	family    *family
	stops     chan os.Signal // TSTP, for us
	continued chan os.Signal // CONT, for us
	wanted    bool           // the command is to have the foreground when we have it
}

// unstopped is how long we wait to be stopped by a signal of our own: a process
// that no shell would continue is not stopped.
const unstopped = 20 * time.Millisecond

// newJob catches the signals that stop this process and let it go on. It comes
// before the command is started, so that none is missed.
func newJob() *job {
	j := &job{terminal: openTerminal(), stops: make(chan os.Signal, 1), continued: make(chan os.Signal, 1)}
	signal.Notify(j.stops, syscall.SIGTSTP)
	signal.Notify(j.continued, syscall.SIGCONT)
	return j
}

// attributes are those of the command's process: if somebody at the terminal deals
// with it, and the foreground is ours to give, it is there before it runs. Else it
// could be stopped as it reads, and a Ctrl-Z that comes before it goes on would be
// lost: CONT takes back what is pending.
func (j *job) attributes() *syscall.SysProcAttr {
	attr := processAttributes()
	j.wanted = j.terminal.interactive()
	if j.wanted && j.terminal.foreground() == j.terminal.own {
		attr.Foreground, attr.Ctty = true, j.terminal.fd
	}
	return attr
}

// begin takes in that the command has been started; f is nil if that has failed.
func (j *job) begin(f *family) {
	// A process in the background that writes to the terminal, or takes the
	// foreground back, may be stopped by TTOU. What is ignored earlier, the
	// command would ignore too.
	signal.Ignore(syscall.SIGTTOU)
	j.family = f
	if f != nil {
		j.foreground()
	}
}

// foreground hands the foreground to the command if it is ours to give.
func (j *job) foreground() {
	if j.wanted {
		j.terminal.pass(j.terminal.own, j.family.leader)
	}
}

// mayRead tells whether a command that was stopped because it used the terminal
// from the background is in the foreground now.
func (j *job) mayRead(sig syscall.Signal) bool {
	if sig != syscall.SIGTTIN && sig != syscall.SIGTTOU {
		return false
	}
	j.wanted = true
	return j.terminal.pass(j.terminal.own, j.family.leader)
}

// stopsWith tells whether we stop as the command does: where there is a
// terminal, for signals that come from there.
func (j *job) stopsWith(sig syscall.Signal) bool {
	return j.terminal.exists() && (sig == syscall.SIGTSTP || sig == syscall.SIGTTIN || sig == syscall.SIGTTOU)
}

// stop stops this process and returns once it goes on. Of the signals that stop
// processes unless no shell would continue them, TTIN is the one that we neither
// catch nor ignore: Go does not give back the disposition of one that was caught.
func (j *job) stop() {
	j.terminal.pass(j.family.leader, j.terminal.own)
	signalSelf(syscall.SIGTTIN)
	timer := time.NewTimer(unstopped)
	defer timer.Stop()
	select {
	case <-j.continued:
	case <-timer.C:
	}
}

// end takes the foreground back, also from a group of the command's that is no
// more, and mends the terminal if the command was killed and could not.
func (j *job) end(killed bool) {
	if !j.wanted {
		return
	}
	inFront := j.terminal.foreground()
	if j.family != nil && inFront == j.family.leader || inFront != 0 && errors.Is(syscall.Kill(-inFront, 0), syscall.ESRCH) {
		j.terminal.pass(inFront, j.terminal.own)
		if killed {
			j.terminal.restore()
		}
	}
}

func (j *job) close() {
	signal.Stop(j.stops)
	signal.Stop(j.continued)
	signal.Reset(syscall.SIGTTOU)
	j.terminal.close()
}
