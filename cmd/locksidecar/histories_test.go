package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
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
				var members []string
				for _, server := range m {
					proxy := faultproxy.Start(t, "tcp", server.Addr())
					proxy.SetRule(unreliable)
					members = append(members, proxy.Addr())
				}
				pods = append(pods, m.on(t, "REDIS_ADDRS="+strings.Join(members, ",")))
			}
			return pods
		},
	} {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			pods := start(t)
			undecided, granted := 0, 0
			for i := range histories {
				h := history(t, pods, fmt.Sprint("k", i))
				figures.Count(figures.Linearized, name, 1)
				yes, decided := h.Linearizable(10 * time.Second)
				if !decided {
					undecided++
				}
				if decided && !yes {
					t.Error("no lock gives these answers")
				}
				granted += h.Granted()
			}
			t.Logf("%d grants, %d of %d histories undecided", granted, undecided, histories)
			figures.Count(figures.Undecided, name, undecided)
			if undecided > histories/2 || granted < 15*histories {
				t.Error("this shows little")
			}
		})
	}
}

// unreliable is a rule of few faults: each may make an outcome uncertain, and of
// many nothing can be told.
func unreliable(c faultproxy.Command) faultproxy.Action {
	if c.Script == "" {
		return faultproxy.Action{}
	}
	switch rand.IntN(100) {
	case 0:
		return faultproxy.Action{LoseReply: true}
	case 1:
		return faultproxy.Action{RequestDelay: rand.N(storeTimeout)}
	case 2:
		return faultproxy.Action{ReplyDelay: rand.N(storeTimeout)}
	}
	return faultproxy.Action{}
}

// history has callers of the processes ask for a key and give it back, about two
// hundred times, and returns what they were told.
func history(t *testing.T, pods []*proc, key string) *lockertest.History {
	h := new(lockertest.History)
	var callers sync.WaitGroup
	for i := range 2 * len(pods) {
		p := pods[i%len(pods)]
		callers.Go(func() {
			for h.Len() < 200 {
				time.Sleep(rand.N(20 * time.Millisecond)) // or most of them are refusals
				got := p.POST(key, "ttl=60s")
				number, told := h.Ask(got.Sent)
				told(got.Got, outcomeOf(t, got), got.JSON.Fence)
				if got.Status != http.StatusCreated {
					continue
				}
				gave := p.DELETE(key, fmt.Sprint("fencing_token=", got.JSON.Fence))
				h.GiveBack(number, gave.Sent)(gave.Got, outcomeOf(t, gave))
			}
		})
	}
	callers.Wait()
	return h
}

func outcomeOf(t *testing.T, a answer) lockertest.Outcome {
	switch {
	case a.Status == http.StatusCreated, a.Status == http.StatusNoContent:
		return lockertest.Done
	case a.Is(http.StatusConflict, "held"), a.Status == http.StatusGone, a.Status == http.StatusNotFound:
		return lockertest.Refused
	case a.Status != http.StatusServiceUnavailable:
		t.Errorf("the answer is %v", a)
	}
	return lockertest.Unknown
}
