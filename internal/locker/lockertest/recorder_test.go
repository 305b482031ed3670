package lockertest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// recorder stands in for a *testing.T, so that a case can be seen to fail.
type recorder struct {
	ctx context.Context

	mu      sync.Mutex
	failed  bool
	skipped bool
	first   string // what was said at the first failure
}

var _ T = (*recorder)(nil)

// record runs one case and returns how it went.
func record(t *testing.T, c testCase, h Harness) *recorder {
	r := &recorder{ctx: t.Context()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run(r, h)
	}()
	<-done
	return r
}

func (r *recorder) fail(message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.failed {
		r.failed, r.first = true, message
	}
}

func (r *recorder) Helper()                  {}
func (r *recorder) Name() string             { return "recorder" }
func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Log(...any)               {}
func (r *recorder) Logf(string, ...any)      {}

func (r *recorder) Fail()                             { r.fail("") }
func (r *recorder) Error(args ...any)                 { r.fail(fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.fail(fmt.Sprintf(format, args...)) }

func (r *recorder) FailNow() {
	r.fail("")
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) {
	r.Error(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) SkipNow() {
	r.mu.Lock()
	r.skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Skip(...any)          { r.SkipNow() }
func (r *recorder) Skipf(string, ...any) { r.SkipNow() }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
