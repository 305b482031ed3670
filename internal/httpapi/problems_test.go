package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

const driverWords = "dial tcp 10.0.0.7:6379: WRONGPASS hunter2"

func storeError(reason locker.StoreReason) error {
	return &locker.StoreError{Reason: reason, Certain: true, Err: errors.New(driverWords)}
}

func TestEachErrorHasItsStatusAndCode(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, test := range []struct {
		err    error
		status int
		code   string
		with   string // further members
	}{
		{&locker.HeldError{HeldHere: true, Occupancy: locker.Occupancy{State: locker.OccupancyHeld, ExpiresIn: 1500 * time.Millisecond, QueueLength: 1, Holder: &locker.Holder{Pod: "p", Since: at, Note: "n"}}}, 409, "held",
			`"state":"held","holder":{"pod":"p","since":"2026-01-02T03:04:05.000Z","note":"n"},"expires_in_ms":1500,"queue_length":1,"held_here":true`},
		{&locker.HeldError{TimedOut: true, Queued: true, Occupancy: locker.Occupancy{State: locker.OccupancyFree, QueueLength: 2}}, 409, "wait_timeout", `"queue_length":2`},
		{locker.ErrTooManyWaiters, 429, "too_many_waiters", ""},
		{&locker.HeldError{Queued: true, Occupancy: locker.Occupancy{State: locker.OccupancyFree, QueueLength: 3}}, 409, "queued", `"queue_length":3,"held_here":false`},
		{&locker.MismatchError{Parameter: "ttl"}, 409, "parameter_mismatch", `"parameter":"ttl"`},
		{&locker.InvalidError{Parameter: "min_hold", Problem: "too long"}, 400, "invalid_min_hold", `"detail":"min_hold: too long"`},
		{locker.ErrOwnerBusy, 409, "owner_busy", ""},
		{locker.ErrOwnerMismatch, 409, "owner_mismatch", ""},
		{&locker.LostError{Fence: 7, Cause: locker.CauseGone, LostAt: at}, 410, "lost", `"fencing_token":7,"cause":"gone","lost_at":"2026-01-02T03:04:05.000Z"`},
		{fmt.Errorf("k: %w", locker.ErrKeyConflict), 422, "key_conflict", ""},
		{locker.ErrTooManyLocks, 429, "too_many_locks", ""},
		{locker.ErrUnsupported, 501, "unsupported", ""},
		{locker.ErrShuttingDown, 503, "shutting_down", ""},
		{locker.ErrDraining, 503, "draining", ""},
		{locker.ErrAcquireUnresolved, 503, "acquire_unresolved", ""},
		{&locker.StoreError{Reason: locker.StoreBroken, Err: errors.New(driverWords)}, 503, "acquire_unresolved", ""},
		{locker.ErrExtendUnconfirmed, 503, "extend_unconfirmed", ""},
		{&locker.UnconfirmedError{FreeWithin: 1500*time.Millisecond + 1}, 503, "release_unconfirmed", `"free_within_ms":1501`},
		{storeError(locker.StoreUnavailable), 503, "store_unavailable", ""},
		{storeError(locker.StoreTimeout), 503, "store_unavailable", ""},
		{storeError(locker.StoreBroken), 503, "store_unavailable", ""},
		{storeError(locker.StoreBusy), 503, "store_busy", ""},
		{storeError(locker.StoreWriteRefused), 503, "store_write_refused", ""},
		{storeError(locker.StoreAuthFailed), 503, "store_auth_failed", ""},
		{storeError(locker.StoreRecovering), 503, "store_recovering", ""},
		{storeError(locker.StoreNoQuorum), 503, "no_quorum", ""},
		{storeError(locker.StoreNotReplicated), 503, "not_replicated", ""},
		{storeError(locker.StoreFailed), 503, "store_error", ""},
		{errors.New(driverWords), 500, "internal_error", ""},
	} {
		t.Run(test.code, func(t *testing.T) {
			var log strings.Builder
			locks := newFakeLocks()
			locks.acquire = func(context.Context, locker.Request) (locker.Status, bool, error) {
				return locker.Status{}, false, test.err
			}
			cfg := testConfig(locks)
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			response := do(t, newAPI(cfg), "POST", "/locks/k", "")
			body := bodyOf(t, response)
			var p struct {
				Type, Title, Code string
				Status            int
			}
			if err := json.Unmarshal([]byte(body), &p); err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != test.status || p.Status != test.status || p.Code != test.code || p.Title == "" ||
				p.Type != problemTypes+test.code || !strings.Contains(body, test.with) {
				t.Errorf("%d %s", response.StatusCode, body)
			}
			if got := response.Header.Get("Content-Type"); got != "application/problem+json" {
				t.Errorf("Content-Type %s", got)
			}
			if retry := response.Header.Get("Retry-After") != ""; retry != (test.status == 503 || test.status == 429) {
				t.Errorf("Retry-After: %v", retry)
			}
			if strings.Contains(body, "hunter2") || strings.Contains(body, "10.0.0.7") {
				t.Error("the driver's words reached the caller")
			}
			if spoken := strings.Contains(test.err.Error(), driverWords) && test.code != "acquire_unresolved"; spoken && !strings.Contains(log.String(), "10.0.0.7") {
				t.Error("the driver's words are not in the log")
			}
		})
	}
}

func TestEveryStoreReasonHasARow(t *testing.T) {
	for _, reason := range locker.StoreReasons {
		if p := problemOf(storeError(reason)); p.Status != http.StatusServiceUnavailable {
			t.Errorf("%s: status %d", reason, p.Status)
		}
	}
}

func TestEveryRefusalRaisedHereHasARow(t *testing.T) {
	for _, code := range []string{
		"invalid_key", "invalid_ttl", "invalid_wait", "invalid_owner", "invalid_bind", "invalid_renew", "invalid_max_hold",
		"invalid_min_hold", "invalid_note", "invalid_fencing_token", "invalid_force", "invalid_all", "invalid_parameter",
		"invalid_body", "invalid_request", "body_too_large", "unsupported_media_type", "unauthorized", "token_unavailable",
		"forbidden_host", "cross_origin", "not_found", "method_not_allowed", "internal_error", "unsupported",
	} {
		if p := problemOf(refuse(code, "")); p.Code != code {
			t.Errorf("%s becomes %s", code, p.Code)
		}
	}
}

func TestAHandlerThatPanicsAnswers500(t *testing.T) {
	locks := newFakeLocks()
	locks.acquire = func(context.Context, locker.Request) (locker.Status, bool, error) { panic(driverWords) }
	_, address := serve(t, "tcp", testConfig(locks))
	c := dial(t, "tcp", address)
	c.send(post)
	if body := c.answerStatus(500); !strings.Contains(body, "internal_error") || strings.Contains(body, "10.0.0.7") {
		t.Errorf("answer %s", body)
	}
}
