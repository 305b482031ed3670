package locker

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// clocks are those of a machine.
type clocks struct {
	wall, monotonic, boot time.Duration
	asked                 int
	slow                  time.Duration // what asking takes
	onAsk                 func()        // happens meanwhile
}

func (c *clocks) bootClock() *bootClock {
	return newBootClock(func() Instant {
		c.asked++
		reading := Instant(c.boot)
		c.pass(c.slow)
		if c.onAsk != nil {
			c.onAsk()
		}
		return reading
	}, func() (wall, monotonic time.Duration) { return c.wall, c.monotonic })
}

func (c *clocks) pass(d time.Duration) {
	c.wall, c.monotonic, c.boot = c.wall+d, c.monotonic+d, c.boot+d
}

func (c *clocks) suspend(d time.Duration) { c.wall, c.boot = c.wall+d, c.boot+d }

func machine() *clocks {
	return &clocks{wall: 1e18, monotonic: time.Minute, boot: time.Hour, slow: time.Microsecond}
}

func TestTheBootClockIsAskedForNowAndThen(t *testing.T) {
	m := machine()
	c := m.bootClock()
	for range 1000 {
		m.pass(100 * time.Microsecond)
		if late := time.Duration(Instant(m.boot) - c.read()); late < 0 || late > atOnce {
			t.Fatalf("a reading is %v late", late)
		}
	}
	if m.asked < 90 || m.asked > 101 {
		t.Errorf("it was asked %d times in 100 ms", m.asked)
	}
}

func TestTheBootClockCountsEverySuspension(t *testing.T) {
	for name, step := range map[string]func(*clocks){
		"at once":                          func(m *clocks) {},
		"after a while":                    func(m *clocks) { m.pass(2 * askAfter) },
		"after the wall clock was set":     func(m *clocks) { m.wall -= time.Hour },
		"and the wall clock is set later":  func(m *clocks) { m.pass(2 * askAfter); m.wall -= 5 * time.Second },
		"with an offset from the time set": func(m *clocks) { m.wall -= 4 * time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			m := machine()
			c := m.bootClock()
			for range 100 {
				before := c.read()
				step(m)
				m.suspend(5 * time.Second)
				for range 3 {
					if late := time.Duration(Instant(m.boot) - c.read()); late < 0 || late > atOnce {
						t.Fatalf("after a suspension a reading is %v late", late)
					}
				}
				if c.read().Sub(before) < 5*time.Second-atOnce {
					t.Fatal("the suspension was not counted")
				}
			}
		})
	}
}

func TestASuspensionWhileTheBootClockIsAskedIsCountedByTheNextReading(t *testing.T) {
	m := machine()
	c := m.bootClock()
	m.pass(2 * askAfter)
	m.onAsk = func() { m.suspend(time.Minute) }
	c.read()
	m.onAsk = nil
	if late := time.Duration(Instant(m.boot) - c.read()); late < 0 || late > atOnce {
		t.Errorf("the next reading is %v late", late)
	}
}

func TestTheBootClockDoesNotTrustAReadingThatTookLong(t *testing.T) {
	m := machine()
	interruptions := 1
	m.onAsk = func() {
		if interruptions > 0 {
			interruptions--
			m.pass(time.Second)
		}
	}
	c := m.bootClock()
	if late := time.Duration(Instant(m.boot) - c.read()); late < 0 || late > atOnce {
		t.Errorf("a reading is %v late", late)
	}

	m.slow = 3 * atOnce // for good
	m.pass(2 * askAfter)
	if late := time.Duration(Instant(m.boot) - c.read()); late < 0 || late > atOnce {
		t.Errorf("where asking takes long, a reading is %v late", late)
	}
}

// Whoever asks first after a suspension does not ask alone, and some learn less
// of it than others.
func TestTheBootClockDoesNotGoBackWhereManyAskAtOnce(t *testing.T) {
	var monotonic, suspended, slow atomic.Int64
	c := newBootClock(func() Instant {
		asked := Instant(monotonic.Load() + suspended.Load())
		monotonic.Add(slow.Add(7919) % int64(atOnce/2))
		return asked
	}, func() (wall, mono time.Duration) {
		now := time.Duration(monotonic.Load())
		return now + time.Duration(suspended.Load()), now
	})
	for range 10_000 {
		suspended.Add(int64(time.Second))
		var readings [4]Instant
		var readers sync.WaitGroup
		for i := range readings {
			readers.Go(func() { readings[i] = c.read() })
		}
		readers.Wait()
		if last, now := slices.Max(readings[:]), c.read(); now < last {
			t.Fatalf("it went back by %v", last.Sub(now))
		}
	}
}

func TestTheBootClockIsTheKernels(t *testing.T) {
	var readers sync.WaitGroup
	defer readers.Wait()
	for range 4 {
		readers.Go(func() {
			for range 20_000 {
				before, reading, after := askBootTime(), BootTime(), askBootTime()
				if reading < before.Add(-2*atOnce) || reading > after {
					t.Errorf("it reads %d, the kernel's %d before and %d after", reading, before, after)
					return
				}
				if again := BootTime(); again < reading {
					t.Errorf("it went back by %v", reading.Sub(again))
					return
				}
			}
		})
	}
}

func BenchmarkBootTime(b *testing.B) {
	for b.Loop() {
		BootTime()
	}
}
