package redis

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

// BenchmarkScripts tells what the calls of a hand-over cost Redis: the median
// of the µs that it counts for each script, and the commands within. Redis
// counts wall time, and other load doubles it: compare what ran in turns, by
// -bench Scripts -benchtime 200x -run ^$.
func BenchmarkScripts(b *testing.B) {
	b.Run("trivial", func(b *testing.B) {
		m := newMeter(b)
		for name, source := range map[string]string{
			"return":  "return 1",
			"set":     "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])",
			"compare": "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end",
		} {
			sha := m.conn.mustDo(b, "SCRIPT", "LOAD", source).(string)
			for range b.N {
				m.measure(b, name, func() { m.conn.mustDo(b, "EVALSHA", sha, "1", "lock:k", "token", "60000") })
			}
		}
		m.report(b)
	})
	b.Run("lone", func(b *testing.B) {
		m := newMeter(b)
		for range b.N {
			c := claimFor(testKey)
			m.measure(b, "acquire", func() { mustAcquire(b, m.backend, c) })
			m.measure(b, "renew", func() {
				if err := renewOne(b.Context(), m.backend, c); err != nil {
					b.Fatal(err)
				}
			})
			m.measure(b, "release", func() { mustRelease(b, m.backend, c) })
		}
		m.report(b)
	})
	for _, size := range []struct{ processes, callers int }{{4, 1}, {200, 1}, {4, 8}} {
		b.Run(fmt.Sprintf("line=%dx%d", size.processes, size.callers), func(b *testing.B) {
			m := newMeter(b)
			m.benchmarkLine(b, size.processes, size.callers)
			m.report(b)
		})
	}
}

// benchmarkLine hands a lock around among processes of some callers each.
func (m *meter) benchmarkLine(b *testing.B, processes, callers int) {
	holder := claimFor(testKey)
	mustAcquire(b, m.backend, holder)
	type caller struct {
		p      int
		number int64
		claim  locker.Claim
	}
	var line []*caller // in order of arrival
	names := make([]string, processes)
	for i := range names {
		names[i] = fmt.Sprintf("%026d", i)
		m.subscribed.mustSend(b, "SUBSCRIBE", "lock:#wake:"+names[i])
	}
	call := int64(0)
	ask := func(c *caller) *locker.HeldError {
		call++
		turn := locker.Turn{Process: names[c.p], Number: c.number, Call: call, WaitLeft: 1e10}
		for _, other := range line {
			if other != c && other.p == c.p {
				turn.Rest = other.number
				break
			}
		}
		c.claim.NotAfter = soon()
		_, err := m.backend.AcquireInLine(b.Context(), c.claim, turn)
		if err == nil {
			return nil
		}
		return err.(*locker.HeldError)
	}
	join := func(c *caller) {
		c.number, c.claim = 0, claimFor(testKey)
		c.number = ask(c).Standing.Number
		line = append(line, c)
	}
	for i := range processes * callers {
		join(&caller{p: i % processes})
	}
	eventually(b, "all listen", func() bool {
		return len(m.conn.mustDo(b, "PUBSUB", "CHANNELS").([]any)) == processes
	})
	for range b.N {
		m.measure(b, "release", func() { mustRelease(b, m.backend, holder) })
		first := line[0]
		m.measure(b, "woken", func() {
			if held := ask(first); held != nil {
				b.Fatalf("told %+v", held)
			}
		})
		holder, line = first.claim, line[1:]
		m.measure(b, "join", func() { join(first) })
		m.measure(b, "poll", func() { ask(line[0]) })
	}
}

func mustRelease(b *testing.B, backend *Backend, c locker.Claim) {
	if err := releaseOne(b.Context(), backend, c); err != nil {
		b.Fatal(err)
	}
}

// meter reads what Redis counts.
type meter struct {
	backend          *Backend
	conn, subscribed benchConn
	took             map[string][]float64
	within           map[string]float64
}

type benchConn struct{ *redistest.Conn }

func newMeter(b *testing.B) *meter {
	server := redistest.Start(b)
	return &meter{
		backend: open(b, server, Config{}), conn: benchConn{server.Dial()}, subscribed: benchConn{server.Dial()},
		took: map[string][]float64{}, within: map[string]float64{},
	}
}

func (m *meter) measure(b *testing.B, name string, run func()) {
	before, within := m.read(b)
	run()
	after, withinAfter := m.read(b)
	m.took[name] = append(m.took[name], after-before)
	m.within[name] = withinAfter - within
}

// read returns the µs that scripts have taken, and how many other commands
// there were.
func (m *meter) read(b *testing.B) (micros, commands float64) {
	for _, line := range strings.Split(m.conn.mustDo(b, "INFO", "commandstats").(string), "\r\n") {
		var calls, took float64
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		if _, err := fmt.Sscanf(rest, "calls=%f,usec=%f", &calls, &took); err != nil {
			continue
		}
		switch name {
		case "evalsha":
			micros += took
		case "info":
		default:
			commands += calls
		}
	}
	return micros, commands
}

func (m *meter) report(b *testing.B) {
	sum := 0.0
	for name, took := range m.took {
		slices.Sort(took)
		median := took[len(took)/2]
		if name != "poll" {
			sum += median
		}
		b.ReportMetric(median, "µs/"+name)
		b.ReportMetric(m.within[name], "cmds/"+name)
	}
	b.ReportMetric(sum, "µs/sum")
	b.ReportMetric(0, "ns/op")
}

func (c benchConn) mustDo(b *testing.B, args ...any) any {
	reply, err := c.Do(args...)
	if err != nil {
		b.Fatal(err)
	}
	return reply
}

func (c benchConn) mustSend(b *testing.B, args ...any) {
	if err := c.Send(args...); err != nil {
		b.Fatal(err)
	}
}
