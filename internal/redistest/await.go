package redistest

import (
	"testing"
	"time"
)

// settleDeadline bounds how long servers may take to agree on something. It is
// generous because CI machines run many of them at once.
const settleDeadline = 60 * time.Second

// await polls until ok; the test fails if that takes too long.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(settleDeadline); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}
