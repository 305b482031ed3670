package lockertest

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// modelPlace is where a process stands in line, as it has to be.
type modelPlace struct {
	process string
	number  int64
	call    int64
	askBy   locker.Instant
	waitEnd locker.Instant
	woken   locker.Instant // 0 if it has asked since
}

func (p modelPlace) dead(now locker.Instant) bool {
	return now > p.askBy.Add(locker.DeadAfter) || now > p.waitEnd || p.woken != 0 && now > p.woken.Add(locker.DeadAfter)
}

func (p modelPlace) before(other modelPlace) bool {
	return p.number < other.number || p.number == other.number && p.process < other.process
}

// deadHeads returns how many places at the front of the line are dead.
func (k *modelKey) deadHeads(now locker.Instant) int {
	n := 0
	for n < len(k.line) && k.line[n].dead(now) {
		n++
	}
	return n
}

func (k *modelKey) dropDead(now locker.Instant) {
	for range k.deadHeads(now) {
		if k.line[0].woken != 0 {
			k.silent++
		}
		k.line = k.line[1:]
	}
}

func (k *modelKey) place(process string) int {
	return slices.IndexFunc(k.line, func(p modelPlace) bool { return p.process == process })
}

func (k *modelKey) takeOut(process string) modelPlace {
	i := k.place(process)
	if i < 0 {
		return modelPlace{process: process}
	}
	p := k.line[i]
	k.line = slices.Delete(slices.Clone(k.line), i, i+1)
	return p
}

func (k *modelKey) insert(p modelPlace) int {
	i := 0
	for i < len(k.line) && k.line[i].before(p) {
		i++
	}
	k.line = slices.Insert(slices.Clone(k.line), i, p)
	return i
}

// wake wakes the first in line; before it the dead and those for whom nobody
// listens are dropped.
func (m model) wake(k *modelKey, now locker.Instant) {
	left := 1 << min(k.silent, 10)
	for i := 0; i < len(k.line) && left > 0; {
		if k.line[i].dead(now) || m.deaf[k.line[i].process] {
			k.line = slices.Delete(slices.Clone(k.line), i, i+1)
			continue
		}
		if k.line[i].woken == 0 {
			k.line[i].woken = now
		}
		i++
		left--
	}
}

func (m model) wakeOnce(k *modelKey, now locker.Instant) {
	if len(k.line) > 0 && k.line[0].woken == 0 {
		m.wake(k, now)
	}
}

func (m model) freed(k *modelKey, now locker.Instant) {
	k.dropDead(now)
	m.wake(k, now)
}

// inLine compares a backend's answer to a claim that waits with what it has to
// be, and takes it over. may says whether a grant is allowed at all.
func (m model) inLine(t T, c locker.Claim, turn locker.Turn, may bool, grant locker.Grant, err error, now locker.Instant) {
	t.Helper()
	k := m.at(c.Key, now)
	granted, spent := k.fence[c.Token]
	switch {
	case now > c.NotAfter:
		wantErr(t, "wait late", err, locker.ErrLate)
		return
	case k.heldBy(c.Token):
		if err != nil || grant.Fence != granted {
			t.Errorf("wait again: fence %d, %v; want fence %d", grant.Fence, err, granted)
			return
		}
		m.wantTold(t, k, grant, now)
		return
	case spent && errors.Is(err, locker.ErrSpent):
		return
	case spent && !k.taken && k.last == c.Token:
		t.Errorf("wait with a spent claim: %v, want ErrSpent", err)
		return
	}

	var held *locker.HeldError
	_ = errors.As(err, &held)
	own := k.takeOut(turn.Process)
	k.dropDead(now)
	number := turn.Number
	if number == 0 {
		number = math.MaxInt64
		if held != nil && held.Standing != nil {
			number = held.Standing.Number
		}
		if number <= own.number || len(k.line) > 0 && number <= k.line[len(k.line)-1].number {
			t.Errorf("a new caller has number %d in the line %v", number, k.line)
		}
	}
	first := number
	if turn.Rest != 0 {
		first = min(first, turn.Rest)
	}
	switch {
	case own.number == 0 || turn.Number != 0 && turn.Call >= own.call:
		own.number = first
	case turn.Number == 0:
		own.number = min(own.number, first)
	}
	own.call = max(own.call, turn.Call)
	own.waitEnd = max(own.waitEnd, now.Add(turn.WaitLeft))
	own.woken = 0

	free := !k.taken
	if free && len(k.line) > 0 && k.line[0].before(own) {
		m.wakeOnce(k, now)
	}
	if free && may && own.number == number && (len(k.line) == 0 || own.before(k.line[0])) {
		m.granted(t, k, c, grant, err, now)
		if turn.Rest != 0 {
			own.number = turn.Rest
			i := k.insert(own)
			k.line[i].askBy = now.Add(locker.AskIn(i, c.Keep))
		}
		return
	}
	if held == nil || held.Standing == nil {
		t.Errorf("wait: %v, want a standing in the line %v", err, k.line)
		return
	}
	i := k.insert(own)
	s := held.Standing
	if s.Number != number || s.Ahead != i || held.Queued != free {
		t.Errorf("number %d with %d ahead, queued: %v; want %d with %d, queued: %v", s.Number, s.Ahead, held.Queued, number, i, free)
	}
	most := locker.AskEvery + 10*time.Millisecond
	if !free {
		most = locker.AskIn(i, k.expires.Sub(now)) + m.slack
	}
	if s.AskIn <= 0 || s.AskIn > most {
		t.Errorf("ask again in %v, want at most %v", s.AskIn, most)
	}
	k.line[i].askBy = now.Add(s.AskIn)
	m.wantOccupancy(t, c.Key, held.Occupancy, now)
}

// leave carries out what a Leave has to do.
func (m model) leave(key locker.Key, turn locker.Turn, now locker.Instant) {
	k := m.at(key, now)
	i := k.place(turn.Process)
	if i < 0 || turn.Number != 0 && k.line[i].number != turn.Number || k.line[i].call > turn.Call {
		return
	}
	p := k.takeOut(turn.Process)
	if turn.Rest != 0 {
		p.number, p.call, p.woken = turn.Rest, turn.Call, 0
		k.insert(p)
	}
	k.dropDead(now)
	if !k.taken {
		m.wakeOnce(k, now)
	}
}

// handOver compares a backend's answer to a hand-over with what it has to be,
// and takes it over.
func (m model) handOver(t T, s locker.Surrender, c locker.Claim, turn locker.Turn, verdict error, grant locker.Grant, err error, now locker.Instant) {
	t.Helper()
	k := m.at(c.Key, now)
	var want error
	if !k.heldBy(c.Token) {
		want = m.giveBack(k, s, now)
	}
	wantErr(t, "verdict of a hand-over", verdict, want)
	m.inLine(t, c, turn, want == nil, grant, err, now)
	var held *locker.HeldError
	if err != nil && !errors.As(err, &held) && want == nil && !k.taken {
		m.freed(k, now)
	}
}

// critical tells whether something is over within a moment of now.
func (m model) critical(now locker.Instant) bool {
	for _, k := range m.keys {
		ends := []locker.Instant{k.expires}
		for _, p := range k.line {
			ends = append(ends, p.askBy.Add(locker.DeadAfter), p.waitEnd)
			if p.woken != 0 {
				ends = append(ends, p.woken.Add(locker.DeadAfter))
			}
		}
		for _, end := range ends {
			if end.Sub(now).Abs() < step/5 {
				return true
			}
		}
	}
	return false
}
