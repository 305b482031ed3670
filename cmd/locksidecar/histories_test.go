package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/figures"
	"github.com/locksidecar/locksidecar/internal/locker/lockertest"
	"github.com/locksidecar/locksidecar/internal/redistest"
	"github.com/locksidecar/locksidecar/internal/redistest/faultproxy"
)

// What callers of several processes are told is what one lock would tell them, one
// after the other: also who is refused.
func TestAnswersOfProcessesAreThoseOfOneLock(t *testing.T) {
	t.Parallel()
	const histories = 8
	for name, start := range map[figures.Column]func(t *testing.T) []*proc{
		figures.Single: func(t *testing.T) (pods []*proc) {
			r := redistest.Start(t)
			for range 3 {
				p, proxy := through(t, r)
				proxy.SetRule(unreliable)
				pods = append(pods, p)
			}
			return pods
		},
		figures.Redlock: func(t *testing.T) (pods []*proc) {
			m := startMajority(t, 3)
			for range 3 {
				pods = append(pods, m.on(t))
			}
			return pods
		},
	} {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			pods := start(t)
			decided := 0
			for i := range histories {
				h := history(pods, fmt.Sprint("k", i))
				switch yes, known := h.Linearizable(10 * time.Second); {
				case !known:
				case !yes:
					t.Errorf("no lock gives these answers: %v", h)
					fallthrough
				default:
					decided++
				}
			}
			t.Logf("%d of %d histories decided", decided, histories)
			figures.Count(figures.Linearized, name, decided)
			if decided < histories/2 {
				t.Errorf("only %d of %d histories were decided", decided, histories)
			}
		})
	}
}

// unreliable is a rule of few faults: each makes an outcome uncertain, and of many
// nothing can be told.
func unreliable(c faultproxy.Command) faultproxy.Action {
	if c.Script == "" {
		return faultproxy.Action{}
	}
	switch rand.IntN(60) {
	case 0:
		return faultproxy.Action{LoseReply: true}
	case 1:
		return faultproxy.Action{RequestDelay: time.Duration(rand.Int64N(int64(storeTimeout)))}
	case 2:
		return faultproxy.Action{ReplyDelay: time.Duration(rand.Int64N(int64(storeTimeout)))}
	}
	return faultproxy.Action{}
}

// history has callers of the processes ask for a key and give it back, about two
// hundred times, and returns what they were told.
func history(pods []*proc, key string) *lockertest.History {
	h := new(lockertest.History)
	var callers sync.WaitGroup
	for i := range 2 * len(pods) {
		p := pods[i%len(pods)]
		callers.Go(func() {
			for h.Len() < 200 {
				got := p.POST(key, "ttl=60s")
				number, told := h.Ask(got.Sent)
				told(got.Got, outcomeOf(got), got.JSON.Fence)
				if got.Status != http.StatusCreated {
					continue
				}
				gave := p.DELETE(key, fmt.Sprint("fencing_token=", got.JSON.Fence))
				h.GiveBack(number, gave.Sent)(gave.Got, outcomeOf(gave))
			}
		})
	}
	callers.Wait()
	return h
}

func outcomeOf(a answer) lockertest.Outcome {
	switch a.Status {
	case http.StatusCreated, http.StatusNoContent:
		return lockertest.Done
	case http.StatusConflict, http.StatusGone:
		return lockertest.Refused
	}
	return lockertest.Unknown
}
