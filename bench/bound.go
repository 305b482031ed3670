package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// bound measures how soon others have a lock that is bound to its connection
// once the process that has the connection is killed: the holder at one
// sidecar, the one who waits at another.
func bound(ctx context.Context, l *lab) ([]row, error) {
	store, err := l.startRedis(ctx)
	if err != nil {
		return nil, err
	}
	defer store.stop()
	theirs, err := l.startSidecar(ctx, store.addr)
	if err != nil {
		return nil, err
	}
	defer theirs.kill()
	ours, err := l.startSidecar(ctx, store.addr)
	if err != nil {
		return nil, err
	}
	defer ours.kill()
	next, err := dialHTTP(ctx, ours.addr)
	if err != nil {
		return nil, err
	}
	defer next.Close()

	rounds := 200
	if l.quick {
		rounds = 40
	}
	var took []int64
	for i := range rounds {
		t, err := killBound(ctx, theirs, ours, next, fmt.Sprintf("/locks/bound-%d", i))
		if err != nil {
			return nil, fmt.Errorf("round %d: %w", i, err)
		}
		took = append(took, int64(t))
	}
	line := func(p float64) row {
		return row{
			What: "bound connection's client killed", Subject: fmt.Sprintf("until another has the lock, p%.0f", p),
			Result: fineMillis(time.Duration(percentile(took, p))),
		}
	}
	return []row{line(50), line(99).withGoal("≤ 20 ms", percentile(took, 99) <= int64(20*time.Millisecond))}, nil
}

// killBound takes a lock that is bound to a connection, kills who has it, and
// returns how long it took until the next in line was told of its grant.
func killBound(ctx context.Context, theirs, ours *server, next *httpConn, target string) (took time.Duration, err error) {
	holder, err := startHolder(ctx, theirs.addr, target)
	if err != nil {
		return 0, err
	}
	defer func() {
		_ = holder.Process.Kill() // fails if it is done already
		_ = holder.Wait()         // the error says that it was killed
	}()

	told := make(chan error, 1)
	var at time.Time
	go func() {
		err := next.want(http.StatusCreated, http.MethodPost, target, "ttl=30s&wait=5s")
		at = time.Now()
		told <- err
	}()
	if err := awaitWaiters(ctx, []*server{ours}, 1); err != nil {
		return 0, err
	}
	if err := pause(ctx, 5*time.Millisecond); err != nil { // its place in line is known by then
		return 0, err
	}
	begin := time.Now()
	if err := holder.Process.Kill(); err != nil {
		return 0, err
	}
	if err := <-told; err != nil {
		return 0, err
	}
	return at.Sub(begin), next.want(http.StatusNoContent, http.MethodDelete, target, "")
}

// startHolder takes a lock over a connection that belongs to a process of its
// own by the time it returns.
func startHolder(ctx context.Context, addr, target string) (*exec.Cmd, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "POST %s?ttl=30s&bind=connection HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", target); err != nil {
		return nil, err
	}
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return nil, err
	}
	head := make([]byte, 4096)
	n, err := conn.Read(head)
	if err != nil {
		return nil, err
	}
	if status, _, _ := strings.Cut(string(head[:n]), "\r\n"); !strings.Contains(status, " 201 ") {
		return nil, fmt.Errorf("the bound lock: %s", status)
	}
	file, err := conn.(*net.TCPConn).File()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd := exec.Command("sleep", "1000")
	cmd.Stdin = file
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, cmd.Start()
}
