package locker

import "time"

// plausibleLead is how far a fencing token may lie above the floor. Tokens
// follow the store's clock in microseconds, so more than this is a broken
// counter, and learning from it would spoil every key's.
const plausibleLead = Fence(365 * 24 * time.Hour / time.Microsecond)

// fenceFloor is the least fencing token that the store may grant, for all
// keys: above any that was seen and above the store's clock as it must stand
// by now. It keeps tokens rising when the store has lost its data.
type fenceFloor struct {
	highest Fence   // greatest token seen
	micros  int64   // greatest store clock seen …
	at      Instant // … and when
}

// now returns the floor at an instant, or 0 if nothing was learned yet.
func (f *fenceFloor) now(now Instant) Fence {
	floor := f.highest
	if f.micros > 0 {
		floor = max(floor, Fence(f.micros+now.Sub(f.at).Microseconds()))
	}
	if floor == 0 {
		return 0
	}
	return floor + 1
}

func (f *fenceFloor) plausible(value Fence, now Instant) bool {
	floor := f.now(now)
	return value > 0 && value <= MaxFence && (floor == 0 || value <= floor+plausibleLead)
}

// learnClock learns from a reading of the store's clock; an implausible one is
// ignored.
func (f *fenceFloor) learnClock(unixMicro int64, now Instant) {
	if unixMicro <= 0 || !f.plausible(Fence(unixMicro), now) {
		return
	}
	if f.micros == 0 || unixMicro > f.micros+now.Sub(f.at).Microseconds() {
		f.micros, f.at = unixMicro, now
	}
}

// learn learns from a granted token that was found plausible.
func (f *fenceFloor) learn(fence Fence) { f.highest = max(f.highest, fence) }

// saved returns what a journal keeps of the floor.
func (f *fenceFloor) saved() Floor {
	return Floor{Highest: f.highest, UnixMicro: f.micros, At: f.at}
}

// restore learns from what a journal has kept. An implausible token in it is
// ignored, and so is a reading of the clock that is of another boot.
func (f *fenceFloor) restore(s Floor, now Instant) {
	if s.UnixMicro > 0 && s.At <= now && Fence(s.UnixMicro) <= MaxFence {
		f.micros, f.at = s.UnixMicro, s.At
	}
	if f.plausible(s.Highest, now) {
		f.learn(s.Highest)
	}
}
