package main

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestTheEndOfAProcessEndsTheWaitForItsAnswer(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	p, err := start("failing", nil, sh, "-c", "echo no settings >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	err = p.await(t.Context(), func() error { return errors.New("not yet") })
	if err == nil || !strings.Contains(err.Error(), "exit code 3") || !strings.Contains(err.Error(), "no settings") {
		t.Errorf("the error does not tell how it ended: %v", err)
	}
	if code, err := p.exitCode(10 * time.Second); code != 3 || err != nil {
		t.Errorf("exit code %d, %v; want 3", code, err)
	}
}

func TestAProcessThatWillNotEndIsKilled(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	p, err := start("sleeping", nil, sleep, "600")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.exitCode(time.Millisecond); err == nil {
		t.Error("it is said to have ended")
	}
	p.kill()
	if code, err := p.exitCode(10 * time.Second); code != -1 || err != nil {
		t.Errorf("exit code %d, %v; want -1 for a signal", code, err)
	}
}
