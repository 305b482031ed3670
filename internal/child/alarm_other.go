//go:build !linux

package child

import (
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// alarm rings at an instant, at once if that has passed.
type alarm struct {
	C     chan struct{}
	timer *time.Timer
}

func newAlarm() (*alarm, error) { return &alarm{C: make(chan struct{}, 1)}, nil }

// set has it ring at an instant instead of what was set before.
func (a *alarm) set(at locker.Instant) error {
	if a.timer != nil {
		a.timer.Stop()
	}
	a.timer = time.AfterFunc(at.Sub(locker.BootTime()), func() {
		select {
		case a.C <- struct{}{}:
		default:
		}
	})
	return nil
}

func (a *alarm) close() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
