package lockertest

import (
	"context"
	"fmt"
	"maps"
	"time"

	"pgregory.net/rapid"

	"github.com/locksidecar/locksidecar/internal/figures"
	"github.com/locksidecar/locksidecar/internal/locker"
)

var propertyCases = []testCase{
	{"any sequence of calls is answered as the reference model answers it", func(t T, h Harness) {
		run, slack := 0, step/4 // a backend may take a little virtual time
		if !h.bubble {
			slack = 5 * time.Second
		}
		crowd := h.crowdIfAny(t)
		defer crowd.close()
		var processes []*process
		if crowd.queue != nil {
			processes = []*process{crowd.process(t, "p"), crowd.process(t, "q"), crowd.process(t, "r"), crowd.deaf("deaf")}
		}
		// A plain TB, since rapid asks a *testing.T for its deadline, which
		// panics in a bubble.
		rapid.Check(struct{ rapid.TB }{t}, func(rt *rapid.T) {
			run++
			w := &walk{h: h, model: newModel(slack), begun: h.Now(), queue: crowd.queue, processes: processes, ctx: t.Context()}
			w.model.deaf["deaf"] = true
			for i := range 2 {
				w.keys = append(w.keys, locker.Key(fmt.Sprintf("run%d/key%d", run, i)))
			}
			actions := map[string]func(*rapid.T){
				"claim": w.claim, "send again": w.resend, "renew": w.renew, "release": w.release, "": w.inspect,
			}
			if h.bubble {
				actions["advance"] = w.advance
			}
			if h.Delete != nil {
				actions["delete"] = w.delete
			}
			if crowd.queue != nil {
				maps.Copy(actions, w.queueActions())
			}
			for name, act := range actions {
				actions[name] = func(t *rapid.T) {
					if !w.stale() {
						act(t)
					}
				}
			}
			rt.Repeat(actions)
			if h.Figures != "" {
				figures.Count(figures.Histories, h.Figures, 1)
			}
		})
	}},
}

// walk takes a backend and the model through the same calls.
//
// In virtual time every deadline lies between two moments in which something
// is done, so that nothing depends on which side of a limit a call falls. In
// real time nothing expires.
type walk struct {
	h     Harness
	model model
	keys  []locker.Key
	sent  []locker.Claim
	begun locker.Instant

	ctx       context.Context
	queue     locker.Queue // nil if the backend keeps no line
	processes []*process
	waiting   []waitingClaim
	said      []spoken
}

// stale tells whether the walk has taken so much real time that places may
// have died meanwhile: it is over then.
func (w *walk) stale() bool {
	return !w.h.bubble && w.h.Now().Sub(w.begun) > locker.DeadAfter/2
}

// step is the unit of virtual time.
const step = 10 * time.Millisecond

func (w *walk) advance(t *rapid.T) {
	time.Sleep(time.Duration(rapid.IntRange(1, 40).Draw(t, "steps")) * step)
	for w.model.critical(w.h.Now()) {
		time.Sleep(step / 5)
	}
}

// span draws a time after which something is over.
func (w *walk) span(t *rapid.T, label string) time.Duration {
	if !w.h.bubble {
		return time.Duration(rapid.IntRange(10, 20).Draw(t, label)) * time.Minute
	}
	return time.Duration(rapid.IntRange(0, 60).Draw(t, label))*step + step/2
}

// notAfter draws the end of a request's time.
func (w *walk) notAfter(t *rapid.T) locker.Instant {
	if rapid.IntRange(0, 9).Draw(t, "late") == 0 {
		return w.h.past()
	}
	return w.h.Now().Add(w.span(t, "in time for"))
}

func (w *walk) claim(t *rapid.T) {
	c := w.h.claim(rapid.SampledFrom(w.keys).Draw(t, "key"), w.span(t, "keep"))
	c.NotAfter = w.notAfter(t)
	if k := w.model.at(c.Key, w.h.Now()); k.highest > 0 && rapid.Bool().Draw(t, "floor") {
		c.Floor = k.highest + locker.Fence(rapid.IntRange(-1000, 1000).Draw(t, "floor above the last fence"))
	}
	w.sent = append(w.sent, c)
	w.send(t, c)
}

func (w *walk) resend(t *rapid.T) {
	c := w.drawSent(t)
	if rapid.Bool().Draw(t, "as a new attempt") {
		c.NotAfter = w.notAfter(t)
	}
	w.send(t, c)
}

func (w *walk) send(t *rapid.T, c locker.Claim) {
	now := w.h.Now()
	grant, err := w.h.acquire(t, c)
	if !w.stale() {
		w.model.acquired(t, c, grant, err, now)
	}
}

func (w *walk) renew(t *rapid.T) {
	renewals := make([]locker.Renewal, rapid.IntRange(1, 4).Draw(t, "locks"))
	wants := make([]error, len(renewals))
	now := w.h.Now()
	for i := range renewals {
		c := w.drawSent(t)
		renewals[i] = locker.Renewal{Key: c.Key, Token: c.Token, NotAfter: w.notAfter(t)}
		if rapid.Bool().Draw(t, "extend") {
			renewals[i].Keep = w.span(t, "keep")
		}
		wants[i] = w.model.renew(renewals[i], now)
	}
	for i, err := range w.h.renew(t, renewals...) {
		wantErr(t, fmt.Sprintf("renewal %d of %d", i, len(renewals)), err, wants[i])
	}
}

func (w *walk) release(t *rapid.T) {
	surrenders := make([]locker.Surrender, rapid.IntRange(1, 4).Draw(t, "locks"))
	wants := make([]error, len(surrenders))
	now := w.h.Now()
	for i := range surrenders {
		surrenders[i] = surrender(w.drawSent(t), 0)
		if rapid.IntRange(0, 3).Draw(t, "minimum hold") == 0 {
			surrenders[i].Keep = w.span(t, "keep")
		}
		wants[i] = w.model.release(surrenders[i], now)
	}
	for i, err := range w.h.release(t, surrenders...) {
		wantErr(t, fmt.Sprintf("release %d of %d", i, len(surrenders)), err, wants[i])
	}
}

func (w *walk) delete(t *rapid.T) {
	key := rapid.SampledFrom(w.keys).Draw(t, "key")
	w.h.Delete(key)
	w.model.at(key, w.h.Now()).taken = false
}

// inspect runs after every action.
func (w *walk) inspect(t *rapid.T) {
	if _, ok := w.h.Backend.(locker.Inspector); !ok {
		return
	}
	for _, key := range w.keys {
		if o := w.h.inspect(t, key); !w.stale() {
			w.model.wantOccupancy(t, key, o, w.h.Now())
		}
	}
}

// drawSent picks one of the claims that were sent; there must be one.
func (w *walk) drawSent(t *rapid.T) locker.Claim {
	if len(w.sent) == 0 {
		t.Skip("nothing has been sent yet")
	}
	return w.sent[rapid.IntRange(0, len(w.sent)-1).Draw(t, "claim")]
}
