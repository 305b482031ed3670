package lockertest

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

var fenceCases = []testCase{
	{"fences rise from grant to grant, however the grant before has ended", func(t T, h Harness) {
		var last locker.Fence
		rise := func(after string, keep time.Duration) locker.Claim {
			c, fence := h.take(t, "k", keep)
			if fence <= last {
				t.Errorf("after %s: fence %d after %d", after, fence, last)
			}
			last = fence
			return c
		}
		for range 20 {
			h.mustRelease(t, rise("a release", long))
		}
		rise("a release", short/4)
		time.Sleep(short/4 + rounding)
		c := rise("an expiry", long)
		wantErr(t, "release", h.release(t, surrender(c, 2*time.Millisecond))[0], nil)
		time.Sleep(2*time.Millisecond + rounding)
		c = rise("a minimum hold", long)
		if h.Delete == nil {
			return
		}
		h.Delete("k")
		wantErr(t, "renew", h.renew(t, h.renewal(c, long))[0], locker.ErrGone)
		rise("a deletion", long)
	}},
	{"no fence is below the floor, and later ones go on from there", func(t T, h Harness) {
		c, fence := h.take(t, "k", long)
		h.mustRelease(t, c)
		c = h.claim("k", long)
		c.Floor = fence + aDay
		raised := h.mustAcquire(t, c)
		if raised < c.Floor {
			t.Errorf("fence %d is below the floor %d", raised, c.Floor)
		}
		h.mustRelease(t, c)
		if _, fence = h.take(t, "k", long); fence <= raised {
			t.Errorf("fence %d after %d", fence, raised)
		}
	}},
	{"a floor below the last fence does not lower the next", func(t T, h Harness) {
		c := h.claim("k", long)
		_, seen := h.take(t, "other", long)
		c.Floor = seen + aDay
		raised := h.mustAcquire(t, c)
		h.mustRelease(t, c)
		c = h.claim("k", long)
		c.Floor = seen
		if fence := h.mustAcquire(t, c); fence <= raised {
			t.Errorf("fence %d after %d", fence, raised)
		}
	}},
	{"an implausible floor is refused, takes nothing and is not learned", func(t T, h Harness) {
		c := h.claim("k", long)
		c.Floor = locker.MaxFence + 1
		_, err := h.acquire(t, c)
		if err == nil || !locker.CertainNo(err) {
			t.Fatalf("acquire: %v, want a certain refusal", err)
		}
		if h.CurrentValue != nil {
			if _, ok := h.CurrentValue("k"); ok {
				t.Errorf("the refused claim left a value at the key")
			}
		}
		if _, fence := h.take(t, "k", long); fence > locker.MaxFence/2 {
			t.Errorf("fence %d: the implausible one was learned", fence)
		}
	}},
}

// aDay is by how much the fences of a day's grants rise at least, since they
// follow the store's clock in microseconds.
const aDay = locker.Fence(24 * time.Hour / time.Microsecond)

// atOnce is how many calls the concurrency cases make together.
const atOnce = 50

var concurrencyCases = []testCase{
	{"of fifty claims for one key at once exactly one is granted", func(t T, h Harness) {
		for round := range 5 {
			key := numbered(round)
			errs := together(func(int) error {
				_, err := h.acquire(t, h.claim(key, long))
				for h.Splits && errors.Is(err, locker.ErrSplitVote) {
					time.Sleep(rand.N(50 * time.Millisecond))
					_, err = h.acquire(t, h.claim(key, long))
				}
				return err
			})
			granted := 0
			for _, err := range errs {
				if err == nil {
					granted++
				} else if !locker.CertainNo(err) {
					t.Errorf("acquire: %v, want a yes or a no", err)
				}
			}
			if granted != 1 {
				t.Errorf("%d claims were granted", granted)
			}
		}
	}},
	{"one claim sent fifty times at once is granted once", func(t T, h Harness) {
		c := h.claim("k", long)
		var fences [atOnce]locker.Fence
		errs := together(func(i int) error {
			grant, err := h.acquire(t, c)
			fences[i] = grant.Fence
			return err
		})
		for i, err := range errs {
			if err != nil || fences[i] != fences[0] && !h.Splits {
				t.Fatalf("copy %d: fence %d, %v; copy 0: fence %d", i, fences[i], err, fences[0])
			}
		}
	}},
	{"of fifty releases of one lock at once exactly one frees it", func(t T, h Harness) {
		c, _ := h.take(t, "k", long)
		freed := 0
		for _, err := range together(func(int) error { return h.release(t, surrender(c, 0))[0] }) {
			if err == nil {
				freed++
			} else {
				wantErr(t, "release", err, locker.ErrGone)
			}
		}
		if freed != 1 && !(freed == 0 && h.Splits) { // each may have freed it at some
			t.Errorf("%d releases succeeded", freed)
		}
		h.mustBeFree(t, "k")
	}},
	{"locks of one key that are taken and released by many never overlap", func(t T, h Harness) {
		var checker Checker
		together(func(i int) error {
			for range 20 {
				c := h.claim("k", long)
				grant, err := h.acquire(t, c)
				if err != nil {
					continue
				}
				end := checker.Begin("k", strconv.Itoa(i), grant.Fence, h.Now())
				end(h.Now())
				if err := h.release(t, surrender(c, 0))[0]; err != nil {
					t.Errorf("release: %v", err)
				}
			}
			return nil
		})
		checker.Check(t)
	}},
}

// together runs n calls at once and returns their errors.
func together(call func(i int) error) []error {
	errs := make([]error, atOnce)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			<-start
			errs[i] = call(i)
		})
	}
	close(start)
	wg.Wait()
	return errs
}

func numbered(i int) locker.Key { return locker.Key("k" + strconv.Itoa(i)) }
