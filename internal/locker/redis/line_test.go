package redis

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

const (
	queueKey = "lock:#queue:{lock:k}"
	placeKey = "lock:#place:{lock:k}"
)

func TestALineEndsSoonAfterTheLongestWait(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	mustAcquire(t, b, claimFor(testKey))
	for i, wait := range []time.Duration{time.Second, time.Hour, time.Second} {
		turn := locker.Turn{Process: fmt.Sprint("p", i), Call: 1, WaitLeft: wait}
		if _, err := b.AcquireInLine(t.Context(), claimFor(testKey), turn); err == nil {
			t.Fatal("granted a lock that is held")
		}
		longest := time.Hour
		if i == 0 {
			longest = time.Second
		}
		for _, key := range []string{queueKey, placeKey} {
			if left := server.PTTL(key); left < longest || left > longest+time.Minute {
				t.Errorf("after a wait of %v %s lives for %v, want soon after %v", wait, key, left, longest)
			}
		}
	}
}

// A sorted set that was emptied, and what was evicted, comes back without a time
// to live.
func TestALineThatIsWrittenAnewEndsToo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	mustAcquire(t, b, claimFor(testKey))
	w := newWaiter(b, "p")
	c := w.join(t, testKey)
	for name, before := range map[string]func(){
		"nothing":                   func() {},
		"an eviction of the queue":  func() { server.Do("DEL", queueKey) },
		"an eviction of the places": func() { server.Do("DEL", placeKey) },
		"the death of all places": func() {
			server.Do("DEL", queueKey)
			server.Do("ZADD", queueKey, 1, "dead")
		},
	} {
		before()
		number := w.number
		if _, held := w.ask(t, c); held == nil || w.number != number || held.QueueLength != 1 {
			t.Errorf("after %s: number %d is told %+v, want to be alone in line", name, number, held)
		}
		for _, key := range []string{queueKey, placeKey} {
			if left := server.PTTL(key); left < time.Minute || left > 2*time.Minute {
				t.Errorf("after %s %s lives for %v, want some more than a minute", name, key, left)
			}
		}
	}
}

func TestNothingIsWrittenThatLivesForEver(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	holder := claimFor(testKey)
	mustAcquire(t, b, holder)
	silent, gone, p, q := newWaiter(b, "silent"), newWaiter(b, "gone"), newWaiter(b, "p"), newWaiter(b, "q")
	silent.listen(t)
	p.listen(t)
	q.listen(t)
	silent.join(t, testKey)
	gone.join(t, testKey)
	first, second := p.join(t, testKey), q.join(t, testKey)
	check := func(after string) {
		t.Helper()
		for _, key := range server.Keys("*") {
			if server.PTTL(key) == redistest.NoTTL {
				t.Errorf("after %s %s lives for ever", after, key)
			}
		}
	}
	check("joining")
	if err := releaseOne(t.Context(), b, holder); err != nil {
		t.Fatal(err)
	}
	silent.await(t, locker.HintWake)
	check("a release")
	p.get(t, first) // after the silent one was dropped
	check("a grant")
	if server.Hash(placeKey)["width"] != "" {
		t.Error("the next waking wakes more than one, though the lock was granted")
	}
	q.ask(t, second) // who was silent for too long would be dropped
	handed := claimFor(testKey)
	turn := p.turn()
	verdict, _, err := b.HandOver(t.Context(), surrenderOf(first), handed, turn)
	if verdict.Err != nil || err == nil {
		t.Fatalf("handed over past the place of another: %v, %v", verdict.Err, err)
	}
	check("a hand-over")
	q.await(t, locker.HintWake)
	q.get(t, second)
	if err := b.Leave(t.Context(), testKey, locker.Turn{Process: "p", Call: turn.Call + 1}); err != nil {
		t.Fatal(err)
	}
	check("leaving")
	if left := server.Keys(queueKey); len(left) != 0 {
		t.Errorf("an empty line is left: %v", left)
	}
}

func TestAllNamesOfALockHashToItsSlot(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	mustAcquire(t, b, claimFor("a/b"))
	newWaiter(b, "p").join(t, "a/b")
	keys := server.Keys("*")
	if len(keys) != 4 {
		t.Errorf("the keys are %v, want the lock, its record, queue and places", keys)
	}
	for _, key := range keys {
		tag := key
		if _, rest, ok := strings.Cut(key, "{"); ok {
			tag, _, _ = strings.Cut(rest, "}")
		}
		if tag != "lock:a/b" {
			t.Errorf("%s hashes by %q", key, tag)
		}
	}
}

func TestHeadsWhoseProcessListensNoMoreCostNoWait(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	holder := claimFor(testKey)
	mustAcquire(t, b, holder)
	for i := range 10 {
		newWaiter(b, fmt.Sprint("dead", i)).join(t, testKey)
	}
	alive := newWaiter(b, "alive")
	alive.listen(t)
	c := alive.join(t, testKey)
	if err := releaseOne(t.Context(), b, holder); err != nil {
		t.Fatal(err)
	}
	alive.await(t, locker.HintWake)
	if _, held := alive.ask(t, c); held != nil {
		t.Errorf("told %+v, want a grant", held)
	}
}

func TestOneCallDropsABoundedNumberOfPlaces(t *testing.T) {
	t.Parallel()
	const crowd = 300
	server := redistest.Start(t)
	b := open(t, server, Config{})
	holder := claimFor(testKey)
	mustAcquire(t, b, holder)
	for i := range crowd {
		newWaiter(b, fmt.Sprint("dead", i)).join(t, testKey)
	}
	before := server.Do("ZCARD", queueKey).(int64) // of those who came first some may be dead for their silence
	if err := releaseOne(t.Context(), b, holder); err != nil {
		t.Fatal(err)
	}
	if left := server.Do("ZCARD", queueKey).(int64); left < before-128 || left >= before {
		t.Errorf("one release has left %d of %d places", left, before)
	}
	newWaiter(b, "alive").get(t, claimFor(testKey))
	if o, err := b.Inspect(t.Context(), testKey); err != nil || o.QueueLength != 0 {
		t.Errorf("%d are in line, %v, want none", o.QueueLength, err)
	}
}

func TestTheScriptsAndTheLockerAgreeWhenToAsk(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	c := claimFor(testKey)
	c.Keep = 700 * time.Millisecond
	mustAcquire(t, b, c)
	for ahead := range 30 {
		server.Do("PEXPIRE", lockName, c.Keep.Milliseconds()) // so that only one of the calls has to be in time
		_, held := newWaiter(b, fmt.Sprint("p", ahead)).ask(t, claimFor(testKey))
		if held == nil {
			t.Fatal("the lock has ended: this machine is too slow for the test")
		}
		want := locker.AskIn(ahead, held.ExpiresIn)
		if got := held.Standing.AskIn; got < want || got > want+time.Millisecond || held.Standing.Ahead != ahead {
			t.Errorf("with %d ahead (want %d) the script says %v, the locker %v", held.Standing.Ahead, ahead, got, want)
		}
	}
	want := fmt.Sprintf("local ASK_EVERY, DEAD_AFTER = %d, %d ", locker.AskEvery.Milliseconds(), locker.DeadAfter.Milliseconds())
	if !strings.Contains(library("line"), want) {
		t.Errorf("the library line does not say %q", want)
	}
}

func TestMarksFromBeforeTheServersClockWasSetBackHoldNobodyUp(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	holder := claimFor(testKey)
	mustAcquire(t, b, holder)
	silent, alive := newWaiter(b, "silent"), newWaiter(b, "alive")
	silent.listen(t)
	silent.join(t, testKey)
	c := alive.join(t, testKey)
	ahead := time.Now().Add(time.Hour).UnixMilli()
	server.Do("HSET", placeKey, "at:silent", fmt.Sprintf("1 %d %d %d 1", ahead, ahead, ahead))
	if err := releaseOne(t.Context(), b, holder); err != nil {
		t.Fatal(err)
	}
	silent.await(t, locker.HintWake)
	start := time.Now()
	alive.get(t, c)
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("a silent head from before the step held the next up for %v", took)
	}
}

func TestALineThatCannotBeReadKeepsNobodyFromALock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	for _, key := range []string{queueKey, placeKey} {
		server.Do("FLUSHALL")
		server.Do("SET", key, "not ours", "PX", 60_000)
		c := claimFor(testKey)
		mustAcquire(t, b, c)
		if _, err := b.AcquireInLine(t.Context(), claimFor(testKey), newWaiter(b, "p").turn()); err == nil {
			t.Errorf("%s: a held lock was granted", key)
		}
		if err := releaseOne(t.Context(), b, c); err != nil {
			t.Errorf("%s: release: %v", key, err)
		}
		if _, ok := server.Get("lock:k"); ok {
			t.Errorf("%s: the lock is still there", key)
		}
	}
}

// The oldest caller of a process sleeps for as long as it was told; that a
// younger one is told less must not have their place dropped meanwhile.
func TestALaterCallerOfAProcessDoesNotShortenWhatTheFirstHasPromised(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	mustAcquire(t, b, claimFor(testKey))
	var others []*waiter
	for i := range 12 {
		others = append(others, newWaiter(b, fmt.Sprint("other", i)))
		others[i].join(t, testKey)
	}
	p := newWaiter(b, "p")
	first := p.join(t, testKey)
	promised := func() (ms int64) {
		t.Helper()
		fields := strings.Fields(server.Hash(placeKey)["at:p"])
		if len(fields) != 5 {
			t.Fatalf("the place is %q", fields)
		}
		ms, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return ms
	}
	before, number := promised(), p.number
	for _, w := range others {
		if err := b.Leave(t.Context(), testKey, w.turn()); err != nil {
			t.Fatal(err)
		}
	}
	p.number = 0
	p.join(t, testKey)
	if after := promised(); after < before {
		t.Errorf("the place is dropped %d ms earlier than the first caller was told", before-after)
	}
	p.number = number
	p.ask(t, first)
	if after := promised(); after >= before {
		t.Error("a first caller that is told to ask soon is waited for as before")
	}
}

func TestAReleaseDropsDeadHeadsThoughTheyListen(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	holder := claimFor(testKey)
	mustAcquire(t, b, holder)
	dead, alive := newWaiter(b, "dead"), newWaiter(b, "alive")
	dead.listen(t)
	alive.listen(t)
	dead.join(t, testKey)
	alive.join(t, testKey)
	now := time.Now().UnixMilli()
	server.Do("HSET", placeKey, "at:dead", fmt.Sprintf("1 %d %d 0 1", now-1, now+60_000))
	if err := releaseOne(t.Context(), b, holder); err != nil {
		t.Fatal(err)
	}
	alive.await(t, locker.HintWake)
	if _, still := server.Hash(placeKey)["at:dead"]; still {
		t.Error("a place that has broken its promise is still in line")
	}
}

func TestAReleaseWakesAsManyAsTheSilentHaveCalledFor(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	holder := claimFor(testKey)
	mustAcquire(t, b, holder)
	var line []*waiter
	for i := range 3 {
		w := newWaiter(b, fmt.Sprint("p", i))
		w.listen(t)
		w.join(t, testKey)
		line = append(line, w)
	}
	server.Do("HSET", placeKey, "width", "2")
	if err := releaseOne(t.Context(), b, holder); err != nil {
		t.Fatal(err)
	}
	line[0].await(t, locker.HintWake)
	line[1].await(t, locker.HintWake)
	if place := server.Hash(placeKey)["at:p2"]; strings.Fields(place)[3] != "0" {
		t.Errorf("the third was woken as well: %q", place)
	}
}
