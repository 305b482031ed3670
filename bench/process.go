package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// process is a program under measurement.
type process struct {
	name   string
	cmd    *exec.Cmd
	output bytes.Buffer // read only once exited is closed
	exited chan struct{}
}

// start runs a program with nothing but the given environment. It is killed
// with us, should we die first.
func start(name string, env []string, program string, args ...string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(program, args...), exited: make(chan struct{})}
	p.cmd.Env = env
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // the exit code is read from ProcessState
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the process at once and returns when it has gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended by itself
	<-p.exited
}

// exitCode waits for the end of the process; -1 stands for a signal.
func (p *process) exitCode(within time.Duration) (int, error) {
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-time.After(within):
		return 0, fmt.Errorf("%s has not ended within %v", p.name, within)
	}
}

// await polls until answer succeeds, the process has ended or time is up.
func (p *process) await(ctx context.Context, answer func() error) error {
	const (
		patience = 10 * time.Second
		pause    = 500 * time.Microsecond // also the resolution of start-up times
	)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		err := answer()
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended instead of answering (exit code %d):\n%s",
				p.name, p.cmd.ProcessState.ExitCode(), p.output.Bytes())
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s does not answer: %w", p.name, ctx.Err()), err)
		case <-tick.C:
		}
	}
}

// given are the ports that this process has handed out.
var given sync.Map

// freeAddr returns an address of loopback that nobody listens on. It lies below
// the range from which Linux gives ports to those who ask for any, so that nobody
// gets it before it is used.
func freeAddr() (string, error) {
	const first, end = 2000, 10000
	var last error
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(end-first))
		if _, before := given.LoadOrStore(addr, true); before {
			continue
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			last = err
			continue
		}
		return addr, l.Close()
	}
	return "", fmt.Errorf("no free port found: %w", last)
}
