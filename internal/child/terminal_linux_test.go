package child

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// console is a terminal with somebody in front of it.
type console struct {
	t        *testing.T
	keyboard *os.File
	tty      *os.File

	mu     sync.Mutex
	screen strings.Builder
}

func newConsole(t *testing.T) *console {
	t.Helper()
	c := &console{t: t}
	var err error
	if c.keyboard, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.keyboard.Close() })
	raw, err := c.keyboard.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var number int
	if controlErr := raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}); controlErr != nil || err != nil {
		t.Fatal(controlErr, err)
	}
	if c.tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.tty.Close() })
	go func() {
		part := make([]byte, 4096)
		for {
			n, err := c.keyboard.Read(part)
			c.mu.Lock()
			c.screen.Write(part[:n])
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return c
}

func (c *console) Type(text string) {
	c.t.Helper()
	if _, err := c.keyboard.WriteString(text); err != nil {
		c.t.Fatal(err)
	}
}

// Await returns once the screen shows the text n times.
func (c *console) Await(text string, n int) {
	c.t.Helper()
	defer func() {
		if c.t.Failed() {
			c.t.Logf("the screen:\n%s", c.Screen())
		}
	}()
	eventually(c.t, fmt.Sprintf("the screen shows %q", text), func() bool { return strings.Count(c.Screen(), text) >= n })
}

// number returns the number that the screen shows after the text, once it does.
func (c *console) number(after string) (n int) {
	c.t.Helper()
	pattern := regexp.MustCompile(regexp.QuoteMeta(after) + `(\d+)\D`)
	eventually(c.t, "a number after "+after, func() bool {
		found := pattern.FindStringSubmatch(c.Screen())
		if found != nil {
			n = atoi(c.t, found[1])
		}
		return found != nil
	})
	return n
}

func (c *console) Screen() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.screen.String()
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// atTheConsole has somebody start a supervisor, with the command line given
// after its name, in a shell, and the supervisor the command.
func atTheConsole(t *testing.T, rest string, o order) (*console, *supervisor) {
	t.Helper()
	c := newConsole(t)
	s := how{Shell: c}.start(t)
	c.Await("prompt: ", 1)
	c.Type(`"$SELF" ` + rest + "\n")
	if o.ValidFor == 0 {
		o.ValidFor = time.Hour
	}
	o.KillAfter = second
	s.Order(o)
	return c, s
}

func sh(script string) []string { return []string{"sh", "-c", script} }

func TestTheCommandReadsFromTheTerminalAndTheShellGetsItBack(t *testing.T) {
	t.Parallel()
	c, s := atTheConsole(t, "", order{Run: sh(`echo "group $$"; read line; echo "read: $line"; exit 3`)})
	c.Await("group ", 1)
	c.Type("something\n")
	c.Await("read: something", 1)
	s.WantResult(Result{Code: 3})
	s.pipe.Close()
	c.Await("prompt: ", 2)
	c.Type("echo back with $?\n")
	c.Await("back with 3", 1)
}

func TestCtrlCReachesTheCommandOnce(t *testing.T) {
	t.Parallel()
	c, s := atTheConsole(t, "", order{Run: sh(`n=0; trap 'n=$((n+1)); echo caught $n' INT; trap 'echo bye; exit 9' TERM
		echo "ready $PPID"; while :; do sleep 0.01; done`)})
	c.number("ready ")
	for n := range 3 {
		c.Type(ctrlC)
		c.Await(fmt.Sprintf("caught %d", n+1), 1)
	}
	s.Order(order{News: &News{Lost: "taken"}})
	s.WantResult(Result{Code: 9, Stopped: "taken"})
	if strings.Contains(c.Screen(), "caught 4") {
		t.Error("a signal came twice")
	}
	s.pipe.Close()
	c.Await("prompt: ", 2)
}

func TestCtrlZStopsTheJobAndItGoesOnInTheForegroundAndInTheBackground(t *testing.T) {
	t.Parallel()
	c, s := atTheConsole(t, "", order{Run: sh(`echo "command $$ supervisor $PPID"; read a; echo "first: $a"; read b; echo "second: $b"`)})
	command, supervisor := c.number("command "), c.number("supervisor ")
	stopped := func() bool { return stateOf(command) == "T" && stateOf(supervisor) == "T" }

	c.Type(ctrlZ)
	c.Await("Stopped", 1)
	eventually(t, "both are stopped", stopped)
	c.Type("fg\n")
	eventually(t, "both go on", func() bool { return stateOf(command) == "S" && stateOf(supervisor) == "S" })
	c.Type("one\n")
	c.Await("first: one", 1)

	c.Type(ctrlZ)
	c.Await("Stopped", 2)
	eventually(t, "both are stopped", stopped)
	c.Type("bg\n") // in the background it must not read, so that it is stopped again
	c.Type("echo $((40+2))\n")
	c.Await("42", 1)
	eventually(t, "both are stopped", stopped)
	for look := 1; strings.Count(c.Screen(), "Stopped") < 3; look++ { // the shell continues only what it knows to be stopped
		c.Type(fmt.Sprintf("jobs; echo looked $((%d-1))\n", look+1))
		c.Await(fmt.Sprintf("looked %d\r\n", look), 1)
	}
	c.Type("fg\n")
	eventually(t, "both go on", func() bool { return stateOf(command) == "S" && stateOf(supervisor) == "S" })
	c.Type("two\n")
	c.Await("second: two", 1)
	s.WantResult(Result{})
}

func TestAJobThatIsStoppedBeyondItsLeaseIsKilled(t *testing.T) {
	t.Parallel()
	// A shell that is just starting something cannot be stopped before that has
	// begun, which it cannot if it was stopped itself: hence no loop with a sleep.
	c, s := atTheConsole(t, "", order{Run: sh(`trap "" TERM; echo "command $$"; read line; exit 1`), ValidFor: 8 * second})
	command := c.number("command ")
	c.Type(ctrlZ)
	c.Await("Stopped", 1)
	eventually(t, "it is killed", func() bool { return gone(command) })
	c.Type("fg\n")
	s.WantResult(Result{Code: 137, Stopped: overdue})
	s.pipe.Close()
	c.Await("prompt: ", 3)
}

func TestACommandInAPipelineGetsTheTerminalWhenItAsksForIt(t *testing.T) {
	t.Parallel()
	c, s := atTheConsole(t, "| sed 's/^/piped: /'", order{Run: sh(`echo begins; read line </dev/tty; echo "read $line"`)})
	c.Await("piped: begins", 1)
	c.Type("something\n")
	c.Await("piped: read something", 1)
	s.WantResult(Result{})
	s.pipe.Close()
	c.Await("prompt: ", 2)
}

func TestATerminalThatAKilledCommandLeavesRawIsMended(t *testing.T) {
	t.Parallel()
	c, s := atTheConsole(t, "", order{Run: sh(`trap "" TERM HUP; stty raw -echo; echo ready; while :; do sleep 0.05; done`)})
	c.Await("ready", 1)
	s.Order(order{News: &News{Lost: "taken"}})
	s.WantResult(Result{Code: 137, Stopped: "taken"})
	s.pipe.Close()
	c.Await("prompt: ", 2)
	c.Type("stty -a\n")
	c.Await("isig icanon", 1)
}

func TestAnInteractiveShellAndItsJobEndWithTheLock(t *testing.T) {
	t.Parallel()
	c, s := atTheConsole(t, "", order{Run: []string{"env", "PS1=inner: ", "bash", "--norc", "--noprofile", "-i"}})
	c.Await("inner: ", 1)
	c.Type(`sh -c 'trap "" TERM HUP; echo "job $$"; while :; do sleep 0.05; done'` + "\n")
	job := c.number("job ")
	s.Order(order{News: &News{Lost: "taken"}})
	s.WantResult(Result{Code: 137, Stopped: "taken"})
	if !gone(job) {
		t.Error("the shell's job still runs")
	}
	s.pipe.Close()
	c.Await("prompt: ", 2)
	c.Type("echo $((40+2))\n")
	c.Await("42", 1)
}
