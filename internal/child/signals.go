package child

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// forwarded are the signals that the command gets in our place. INT and QUIT
// come from a terminal only to those in its foreground, and so either to us or
// to the command.
var forwarded = []os.Signal{
	syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
}

// Signals are those that this process catches, for the command or for the end
// of a wait.
type Signals struct {
	C chan os.Signal
}

// CatchSignals begins to catch signals. What was ignored when the process
// started, such as HUP under nohup, stays ignored.
func CatchSignals() *Signals {
	s := &Signals{C: make(chan os.Signal, 64)}
	signal.Notify(s.C, slices.DeleteFunc(append([]os.Signal{
		syscall.SIGPIPE, // else a message to a closed pipe would end us, and the command with us
	}, forwarded...), signal.Ignored)...)
	return s
}

// Stop ends the catching.
func (s *Signals) Stop() { signal.Stop(s.C) }

// EndsWait tells whether a signal ends a process that has no command yet.
func EndsWait(sig os.Signal) bool {
	return slices.Contains(forwarded, sig) && sig != syscall.SIGWINCH
}

// whom tells which of the command's processes are sent a signal that came for
// us. USR1 and USR2 end a process that does not expect them, so that only the
// command itself gets them; the others reach a group from the terminal as well.
func whom(sig syscall.Signal) recipients {
	if sig == syscall.SIGUSR1 || sig == syscall.SIGUSR2 {
		return leader
	}
	return group
}
