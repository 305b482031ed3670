package lockertest

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// recorder stands in for a *testing.T, so that a case can be seen to fail.
type recorder struct {
	ctx context.Context

	mu      sync.Mutex
	failed  bool
	skipped bool
	said    []string // at failures, and why it was skipped
}

var _ T = (*recorder)(nil)

// record runs one case and returns how it went.
func record(ctx context.Context, c testCase, h Harness) *recorder {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &recorder{ctx: ctx}
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
	r.failed = true
	r.said = append(r.said, where()+message)
}

// where names the line of a case that says something.
func where() string {
	callers := make([]uintptr, 20)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	for {
		f, more := frames.Next()
		if name := filepath.Base(f.File); strings.HasPrefix(name, "cases_") || strings.HasPrefix(name, "property") {
			return fmt.Sprintf("%s:%d: ", name, f.Line)
		}
		if !more {
			return ""
		}
	}
}

// text returns what was said.
func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.said, "\n")
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

func (r *recorder) Skip(args ...any) { r.Skipf("%s", fmt.Sprint(args...)) }

func (r *recorder) Skipf(format string, args ...any) {
	r.mu.Lock()
	r.said = append(r.said, fmt.Sprintf(format, args...))
	r.mu.Unlock()
	r.SkipNow()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
