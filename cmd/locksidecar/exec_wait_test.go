package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locksidecar/locksidecar/internal/child"
	"github.com/locksidecar/locksidecar/internal/client"
	"github.com/locksidecar/locksidecar/internal/locker"
)

// scripted is a source of locks whose answers a test has made up.
type scripted struct {
	began time.Time
	asked []string // how long each request was to wait, and when it came
	// answer is called with how long has passed and how long it is to wait.
	answer func(passed, wait time.Duration) error
}

func (s *scripted) take(ctx context.Context, wait time.Duration) (heldLock, error) {
	s.asked = append(s.asked, fmt.Sprintf("%v at %v", wait, time.Since(s.began).Round(time.Second)))
	if err := s.answer(time.Since(s.began), wait); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	return &sidecarLock{}, nil
}

func (s *scripted) close() {}

func refusedAs(code string, status int) error {
	return &client.RefusedError{Code: code, Status: status}
}

// queueFor has q take a lock, in virtual time, and returns how long that took.
func queueFor(t *testing.T, q queueing, answer func(passed, wait time.Duration) error) (s *scripted, took time.Duration, err error) {
	t.Helper()
	s = &scripted{began: time.Now(), answer: answer}
	lock, err := q.take(context.Background(), s)
	if (lock == nil) != (err != nil) {
		t.Fatalf("the lock is %v, the error %v", lock, err)
	}
	return s, time.Since(s.began), err
}

// heldFor answers as a sidecar whose lock is held for so long.
func heldFor(d, maxWait time.Duration) func(passed, wait time.Duration) error {
	return func(passed, wait time.Duration) error {
		switch {
		case wait > maxWait:
			return refusedAs("invalid_wait", 400)
		case passed >= d:
			return nil
		case wait == 0:
			return refusedAs("held", 409)
		case passed+wait < d:
			time.Sleep(wait)
			return refusedAs("wait_timeout", 409)
		}
		time.Sleep(d - passed)
		return nil
	}
}

func upTo(d time.Duration) *time.Duration { return &d }

func TestExecWaitsForAsLongAsItIsTold(t *testing.T) {
	for _, tt := range []struct {
		name    string
		q       queueing
		held    time.Duration
		maxWait time.Duration
		code    int
		took    time.Duration
		within  time.Duration // of took
		most    int           // requests
	}{
		{"for ever", queueing{}, 30 * time.Hour, time.Hour, 0, 30 * time.Hour, time.Second, 31},
		{"for ever, where that is more than allowed", queueing{}, 30 * time.Minute, 5 * time.Minute, 0, 30 * time.Minute, time.Second, 15},
		{"longer than the usual maximum, where it is allowed", queueing{limit: upTo(5 * time.Hour)}, 4 * time.Hour, 24 * time.Hour, 0, 4 * time.Hour, 0, 1},
		{"where no wait is allowed", queueing{}, time.Minute, 0, 0, time.Minute, time.Second, 100},
		{"too short", queueing{limit: upTo(10 * time.Second)}, time.Minute, time.Hour, exitNotAcquired, 10 * time.Second, 0, 1},
		{"too short, and not in whole milliseconds", queueing{limit: upTo(10*time.Second + 500*time.Microsecond)}, time.Minute, time.Hour, exitNotAcquired, 10 * time.Second, time.Millisecond, 1},
		{"too short, in parts", queueing{limit: upTo(10 * time.Minute)}, time.Hour, time.Minute, exitNotAcquired, 10 * time.Minute, time.Second, 20},
		{"too short, where no wait is allowed", queueing{limit: upTo(10 * time.Second)}, time.Minute, 0, exitNotAcquired, 10 * time.Second, time.Second, 40},
		{"once", queueing{once: true}, time.Minute, time.Hour, exitNotAcquired, 0, 0, 1},
		{"once, and free", queueing{once: true}, 0, time.Hour, 0, 0, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, took, err := queueFor(t, tt.q, heldFor(tt.held, tt.maxWait))
				if exitCode(err) != tt.code || took < tt.took-tt.within || took > tt.took+tt.within {
					t.Errorf("after %v: %v", took, err)
				}
				if len(s.asked) > tt.most {
					t.Errorf("it asked %d times: %v", len(s.asked), s.asked)
				}
			})
		})
	}
}

func TestExecPutsUpWithTroubleForAMinute(t *testing.T) {
	down := &client.UnreachableError{URL: "http://x", Err: errors.New("refused")}
	for name, trouble := range map[string]error{
		"no sidecar": down, "no store": refusedAs("store_unavailable", 503), "draining": refusedAs("draining", 503),
		"unresolved": refusedAs("acquire_unresolved", 503), "too many": refusedAs("too_many_waiters", 429),
		"over before it was told": fmt.Errorf("%w before it told of a lock: lost", client.ErrStreamEnded),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, took, err := queueFor(t, queueing{}, func(passed, _ time.Duration) error {
					if passed < 50*time.Second {
						return trouble
					}
					return nil
				})
				if err != nil || took > 53*time.Second || len(s.asked) > 60 {
					t.Errorf("after %v and %d requests: %v", took, len(s.asked), err)
				}
				_, took, err = queueFor(t, queueing{}, func(_, _ time.Duration) error { return trouble })
				if !errors.Is(err, trouble) || took < time.Minute || took > time.Minute+3*time.Second {
					t.Errorf("for ever: after %v: %v", took, err)
				}
				_, took, err = queueFor(t, queueing{once: true}, func(_, _ time.Duration) error { return trouble })
				if !errors.Is(err, trouble) || took != 0 {
					t.Errorf("once: after %v: %v", took, err)
				}
				_, took, err = queueFor(t, queueing{limit: upTo(5 * time.Second)}, func(_, _ time.Duration) error { return trouble })
				if !errors.Is(err, trouble) || took > 5*time.Second {
					t.Errorf("for five seconds: after %v: %v", took, err)
				}
			})
		})
	}
}

func TestEachTroubleHasItsOwnMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, took, err := queueFor(t, queueing{}, func(passed, wait time.Duration) error {
			switch {
			case passed >= 10*time.Minute:
				return nil
			case passed/(30*time.Second)%2 == 0:
				return refusedAs("store_busy", 503)
			}
			time.Sleep(min(wait, 30*time.Second))
			return refusedAs("wait_timeout", 409)
		})
		if err != nil || took > 11*time.Minute {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

func TestAPlaceInLineThatEndsInTroubleHasItsMinute(t *testing.T) {
	down := &client.UnreachableError{URL: "http://x", Err: errors.New("refused")}
	for name, end := range map[string]error{
		"killed": down, "going": refusedAs("shutting_down", 503), "draining": refusedAs("draining", 503),
		"lost before it was told": fmt.Errorf("%w before it told of a lock: lost", client.ErrStreamEnded),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// A sidecar that is away for half a minute in each ten.
				_, took, err := queueFor(t, queueing{}, func(passed, wait time.Duration) error {
					up := passed%(10*time.Minute) - 30*time.Second
					switch {
					case passed >= 3*time.Hour:
						return nil
					case up < 0:
						return down
					}
					time.Sleep(min(wait, 10*time.Minute-30*time.Second-up))
					return end
				})
				if err != nil || took > 3*time.Hour+time.Minute {
					t.Errorf("after %v: %v", took, err)
				}
				// One that does not come back.
				_, took, err = queueFor(t, queueing{}, func(passed, _ time.Duration) error {
					if passed == 0 {
						time.Sleep(20 * time.Minute)
						return end
					}
					return down
				})
				if !errors.Is(err, down) || took < 21*time.Minute || took > 21*time.Minute+3*time.Second {
					t.Errorf("for ever: after %v: %v", took, err)
				}
			})
		})
	}
}

func TestASidecarThatNeverAnswersIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silence := &client.UnreachableError{URL: "http://x", Asked: true, Err: errors.New("nothing has come")}
		s, took, err := queueFor(t, queueing{}, func(_, wait time.Duration) error {
			time.Sleep(wait + answerWithin)
			return silence
		})
		if !errors.Is(err, silence) || len(s.asked) > 2 {
			t.Errorf("after %v and %d requests: %v", took, len(s.asked), err)
		}
	})
}

func TestExecDoesNotInsistOnWhatCannotBe(t *testing.T) {
	for code, status := range map[string]int{
		"invalid_ttl": 400, "invalid_wait": 400, "key_conflict": 422, "unauthorized": 401, "unsupported": 501, "": 404,
	} {
		synctest.Test(t, func(t *testing.T) {
			limit := time.Duration(0)
			if code != "invalid_wait" {
				limit = time.Hour
			}
			s, took, err := queueFor(t, queueing{limit: &limit}, func(_, _ time.Duration) error { return refusedAs(code, status) })
			if err == nil || took != 0 || len(s.asked) != 1 {
				t.Errorf("%s: after %v and %d requests: %v", code, took, len(s.asked), err)
			}
		})
	}
}

func TestASignalEndsAWaitWhateverItWaitsFor(t *testing.T) {
	gone := errors.New("a signal")
	for name, answer := range map[string]func(passed, wait time.Duration) error{
		"the lock": heldFor(time.Hour, 0),
		"trouble":  func(_, _ time.Duration) error { return refusedAs("store_busy", 503) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(context.Background())
				time.AfterFunc(10*time.Second+time.Millisecond, func() { cancel(gone) })
				began := time.Now()
				_, err := queueing{}.take(ctx, &scripted{began: began, answer: answer})
				if !errors.Is(err, gone) || time.Since(began) > 11*time.Second {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
			})
		})
	}
}

func TestKillAfterLeavesRenewalsTheirTime(t *testing.T) {
	for _, tt := range []struct {
		asked *time.Duration
		ttl   time.Duration
		want  time.Duration // below 0: refused
	}{
		{nil, 30 * time.Second, 5 * time.Second},
		{nil, time.Second, time.Second / 6},
		{nil, time.Hour, 10 * time.Second},
		{upTo(10 * time.Second), 30 * time.Second, 10 * time.Second},
		{upTo(10*time.Second + time.Millisecond), 30 * time.Second, -1},
		{upTo(0), 30 * time.Second, 0},
	} {
		x := execution{killAfter: tt.asked}
		got, err := x.killAfterOf(tt.ttl)
		if err != nil {
			got = -1
			if exitCode(err) != exitUsage {
				t.Error(err)
			}
		}
		if got != tt.want {
			t.Errorf("%v of %v: %v, %v", tt.asked, tt.ttl, got, err)
		}
	}
}

func TestAnEndBeforeTheLossIsTheCommandsOwn(t *testing.T) {
	lost := refusedAs("lost", 410)
	for _, tt := range []struct {
		name     string
		result   child.Result
		released error
		code     int
		said     string
	}{
		{"held to the end", child.Result{Code: 3}, nil, 3, ""},
		{"stopped", child.Result{Code: 137, Stopped: "x"}, lost, exitLost, ""},
		{"found at the release", child.Result{Code: 139}, lost, exitLost, "before the command had ended; its exit code was 139"},
		{"given back by another since", child.Result{Code: 139, LostSince: lossWords(causeReleased)}, refusedAs("not_held", 404), 139, "given it back, after the command had ended"},
		{"the sidecar killed since", child.Result{Code: 139, LostSince: "silence"}, &client.UnreachableError{Err: errors.New("refused")}, 139, "silence, after the command had ended"},
		{"found taken since", child.Result{Code: 139, LostSince: lossWords(locker.CauseTaken)}, lost, exitLost, "perhaps before the command had ended; its exit code was 139"},
		{"found gone since", child.Result{Code: 0, LostSince: lossWords(locker.CauseGone)}, nil, exitLost, "perhaps before the command had ended; its exit code was 0"},
	} {
		var said string
		err := (&execution{}).conclude(tt.result, tt.released, func(format string, args ...any) { said += fmt.Sprintf(format, args...) })
		if exitCode(err) != tt.code || !strings.Contains(said, tt.said) || (said == "") != (tt.said == "") {
			t.Errorf("%s: code %d, want %d; said %q, want %q", tt.name, exitCode(err), tt.code, said, tt.said)
		}
	}
}
