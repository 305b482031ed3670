package quorum

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// retryPause is the least pause before a member that has not answered is asked
// again.
const retryPause = 2 * time.Millisecond

// agreePatience is how long a majority whose fences differ waits for the rest,
// which may have the one that was told before, if the claim was sent before.
const agreePatience = 5 * time.Millisecond

// vote is one claim that is put to all members.
type vote struct {
	b        *Backend
	claim    locker.Claim
	turn     *locker.Turn      // if it waits
	given    *locker.Surrender // what is handed over, if it is
	verdicts *tally            // on that
	ctx      context.Context   // of its caller, who waits for a majority only

	mu    sync.Mutex
	seats []seat
	lost  bool         // no majority will grant it, and only the words for that are open
	waits patience     // for those who may agree with one of a majority
	over  bool         // it is decided: granted with the fence, or err
	fence locker.Fence // …
	left  time.Duration
	err   error // …
	done  chan struct{}
}

// newVote makes a vote whose caller's ctx has a deadline.
func (b *Backend) newVote(ctx context.Context, c locker.Claim, t *locker.Turn, s *locker.Surrender) *vote {
	c.Floor = b.clocks.floor(c.Floor, b.now())
	v := &vote{b: b, claim: c, turn: t, given: s, ctx: ctx, seats: make([]seat, len(b.nodes)), done: make(chan struct{})}
	if s != nil {
		v.verdicts = newTally(b, 1, releaseRule)
	}
	return v
}

// hold asks all members and returns the outcome once it is decided.
func (v *vote) hold() (locker.Grant, error) {
	for _, n := range v.b.nodes {
		n.expect(v.claim.Token, v.claim.NotAfter)
	}
	for i, n := range v.b.nodes {
		if !v.b.crew.start(func() { v.ask(i, false) }) {
			n.arrived(v.claim.Token)
			v.take(i, locker.Grant{}, errClosed, false)
		}
	}
	if !heard(v.ctx, v.done) {
		v.close()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return locker.Grant{Fence: v.fence, Left: v.left, Reading: v.b.clocks.report(v.b.now())}, v.err
}

// ask puts the claim to member i, which expects it, until it answers, or that is
// of no use any more.
func (v *vote) ask(i int, overtake bool) {
	n, c := v.b.nodes[i], v.claim
	c.Overtake = overtake
	doubtful := false // a hand-over was not answered, so that the lock is gone may be our own doing
	for pause := retryPause; ; pause *= 2 {
		ctx, cancel := detached(v.ctx, v.b.timeout)
		verdict, grant, err := n.claim(ctx, v.given, c, v.turn)
		again := (unanswered(err) || neverSent(ctx, err)) && v.goesOn(pause)
		cancel()
		if v.given != nil && !again {
			if doubtful && settles(verdict.Err) {
				verdict.Err = nil
			}
			v.verdicts.take(i, []locker.Verdict{verdict})
		}
		doubtful = doubtful || unanswered(err)
		if !again {
			n.arrived(c.Token)
			v.take(i, grant, err, overtake)
			return
		}
		time.Sleep(pause)
	}
}

// unanswered tells whether a request to a member got lost, and may have an
// answer if it is sent again.
func unanswered(err error) bool {
	var store *locker.StoreError
	return errors.As(err, &store) && !store.Certain && (store.Reason == locker.StoreTimeout || store.Reason == locker.StoreBroken)
}

// neverSent tells whether the time of a request to a member, whose context is
// ctx, was over before it could be sent.
func neverSent(ctx context.Context, err error) bool {
	var store *locker.StoreError
	return ctx.Err() != nil && errors.As(err, &store) && store.Certain && (store.Reason == locker.StoreUnavailable || store.Reason == locker.StoreBusy)
}

// goesOn tells whether there will be a use of an answer after a pause.
func (v *vote) goesOn(pause time.Duration) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	deadline, _ := v.ctx.Deadline()
	return !v.over && !v.lost && time.Now().Add(pause).Before(deadline)
}

// take takes in what member i says to the claim.
func (v *vote) take(i int, g locker.Grant, err error, overtakes bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := &v.seats[i]
	s.overtakes, s.err, s.fence, s.left = overtakes, err, g.Fence, g.Left
	s.state, s.held = stateOf(err)
	if s.state == yes && v.claim.Floor > 0 && g.Fence > v.claim.Floor+plausibleLead {
		s.state, s.err = unknown, errImplausible
	}
	if !v.over {
		v.judgeLocked()
		return
	}
	switch {
	case v.err == nil && s.state == yes && s.fence < v.fence:
		v.raiseLocked(i, v.fence) // so that more remember it than have to
	case v.err == nil:
		v.leaveLocked(i)
	case v.err != nil && locker.CertainNo(v.err):
		v.takeBackLocked(i)
	}
	v.settleLocked()
}

// plausibleLead is how far a fencing token may lie above the least that was
// asked for: a year of microseconds. More is a broken counter or a mad clock.
const plausibleLead = locker.Fence(365 * 24 * time.Hour / time.Microsecond)

var errImplausible = errors.New("the member's fencing token is implausibly great")

// judgeLocked decides the vote if that is possible, and else what to do for it.
func (v *vote) judgeLocked() {
	t := v.countLocked()
	switch {
	case t.agreed > 0:
		v.decideLocked(t.agreed, nil)
	case t.is[spent] > 0 || t.canGet+t.is[unknown] < v.b.need:
		// Who has it may depend on those that have not answered yet.
		v.lost = true
		if t.is[spent] > 0 || t.is[asked] == 0 || len(v.heldByOneLocked()) >= v.b.need {
			v.decideLocked(0, v.refusalLocked(t))
		}
	case t.canGet < v.b.need && t.is[asked] == 0 && t.raising == 0:
		v.decideLocked(0, v.unresolvedLocked())
	case t.is[yes] >= v.b.need:
		v.agreeLocked(t.is[asked])
	case t.is[yes] > 0:
		v.overtakeLocked()
	}
}

// result is what the members have said so far.
type result struct {
	is      map[state]int
	raising int
	canGet  int          // yeses that there are or may come
	agreed  locker.Fence // a fence that a majority has recorded; 0 if there is none
}

func (v *vote) countLocked() result {
	t := result{is: make(map[state]int)}
	fences := make(map[locker.Fence]int)
	behind := 0 // where we may yet overtake
	for _, s := range v.seats {
		t.is[s.state]++
		switch {
		case s.raising:
			t.raising++
		case s.state == yes:
			fences[s.fence]++
			if fences[s.fence] >= v.b.need {
				t.agreed = s.fence
			}
		case s.state == queued && !s.overtakes:
			behind++
		}
	}
	t.canGet = t.is[yes] + t.is[asked]
	if t.canGet > 0 && v.given == nil {
		t.canGet += behind
	}
	return t
}

// overtakeLocked asks those for the key at which others are first in line, as we
// are at another member.
func (v *vote) overtakeLocked() {
	if v.given != nil {
		return
	}
	for i := range v.seats {
		if s := &v.seats[i]; s.state == queued && !s.overtakes {
			s.state, s.overtakes = asked, true
			v.b.nodes[i].expect(v.claim.Token, v.claim.NotAfter)
			v.startLocked(i, func() { v.ask(i, true) })
		}
	}
}

// agreeLocked has the members below the greatest fence raise theirs to it.
func (v *vote) agreeLocked(outstanding int) {
	if outstanding > 0 && v.waits != waited {
		v.awaitOthersLocked()
		return
	}
	var greatest locker.Fence
	for _, s := range v.seats {
		if s.state == yes {
			greatest = max(greatest, s.fence)
		}
	}
	for i := range v.seats {
		if s := &v.seats[i]; s.state == yes && s.fence < greatest && !s.raising {
			s.raising = true
			v.raiseLocked(i, greatest)
		}
	}
}

// awaitOthersLocked has the vote judged again after a while.
func (v *vote) awaitOthersLocked() {
	if v.waits == waiting {
		return
	}
	v.waits = waiting
	working := v.b.crew.start(func() {
		time.Sleep(agreePatience)
		v.mu.Lock()
		defer v.mu.Unlock()
		v.waits = waited
		if !v.over {
			v.judgeLocked()
		}
	})
	if !working {
		v.waits = waited
	}
}

// startLocked has the crew do something about member i.
func (v *vote) startLocked(i int, f func()) {
	if !v.b.crew.start(f) {
		v.seats[i].state, v.seats[i].raising = unknown, false
	}
}

// raiseLocked has member i raise its fence.
func (v *vote) raiseLocked(i int, to locker.Fence) {
	v.startLocked(i, func() {
		r := locker.Raising{Key: v.claim.Key, Token: v.claim.Token, Fence: to, NotAfter: v.claim.NotAfter}
		for pause := retryPause; ; pause *= 2 {
			ctx, cancel := detached(v.ctx, v.b.timeout)
			fence, err := v.b.nodes[i].Raise(ctx, r)
			cancel()
			if !unanswered(err) || !v.goesOn(pause) {
				v.raised(i, fence, err)
				return
			}
			time.Sleep(pause)
		}
	})
}

// raised takes in what member i says to a raise.
func (v *vote) raised(i int, fence locker.Fence, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := &v.seats[i]
	s.raising = false
	switch {
	case err == nil:
		s.fence = fence
	case errors.Is(err, locker.ErrTaken), errors.Is(err, locker.ErrGone):
		s.state, s.err = failed, err // it has lost the key since
	default:
		s.state, s.err = unknown, err
	}
	if !v.over {
		v.judgeLocked()
	}
}

// close ends the wait for answers: the vote is decided by those that there are.
func (v *vote) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over {
		return
	}
	t := v.countLocked()
	if t.canGet+t.is[unknown] < v.b.need {
		v.decideLocked(0, v.refusalLocked(t))
	} else {
		v.decideLocked(0, v.unresolvedLocked())
	}
}

// decideLocked ends the vote. What was granted in vain is taken back.
func (v *vote) decideLocked(fence locker.Fence, err error) {
	v.over, v.fence, v.err = true, fence, err
	if err == nil {
		v.left = v.leftLocked()
		for i := range v.seats {
			v.leaveLocked(i)
		}
	}
	close(v.done)
	switch {
	case err == nil: // it is ours
	case !locker.CertainNo(err): // its caller's to undo or to ask for again
		v.b.doubts.add(v.claim, v.mayBeLocked(), v.b.now())
	default:
		for i, s := range v.seats {
			if s.state != asked { // else once it answers
				v.takeBackLocked(i)
			}
		}
	}
	v.settleLocked()
}

// leaveLocked gives up the place in the line of member i, where the claim was
// refused that others have granted: else it would be woken there for nothing.
func (v *vote) leaveLocked(i int) {
	if h := v.seats[i].held; v.turn == nil || h == nil || h.Standing == nil {
		return
	}
	t := *v.turn
	t.Number = 0 // whatever it is there
	v.startLocked(i, func() {
		ctx, cancel := detached(v.ctx, v.b.timeout)
		defer cancel()
		_ = v.b.nodes[i].Leave(ctx, v.claim.Key, t) // else the place ends by itself
	})
}

// leftLocked returns for how long a majority keeps the key.
func (v *vote) leftLocked() time.Duration {
	var lefts []time.Duration
	for _, s := range v.seats {
		if s.state == yes {
			lefts = append(lefts, s.left)
		}
	}
	slices.Sort(lefts)
	return lefts[len(lefts)-v.b.need]
}
