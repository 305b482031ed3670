package fencing

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// Payments is an outside service that takes an idempotency key, as payment
// services do. The key names the piece of work and not the try, so two holders
// who both believe that it is theirs to do charge once between them. This one
// also refuses a fencing token that is lower than one it has seen.
type Payments struct {
	mu      sync.Mutex
	charges map[string]int64 // by idempotency key
	fence   int64
}

// Charged returns how often something was charged, and how much in all.
func (p *Payments) Charged() (times int, sum int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, amount := range p.charges {
		sum += amount
	}
	return len(p.charges), sum
}

// ServeHTTP answers 201 for a charge, 200 for one that was made before, and
// 412 for a writer who is too late.
func (p *Payments) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	fence, err := strconv.ParseInt(r.Header.Get("Lock-Fencing-Token"), 10, 64)
	var charge struct{ Amount int64 }
	if key == "" || err != nil || json.NewDecoder(r.Body).Decode(&charge) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, done := p.charges[key]; done {
		w.WriteHeader(http.StatusOK)
		return
	}
	if fence < p.fence {
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	if p.charges == nil {
		p.charges = make(map[string]int64)
	}
	p.charges[key], p.fence = charge.Amount, fence
	w.WriteHeader(http.StatusCreated)
}

// Charge asks the service for a charge. first is false if it had been made
// before; a writer who is too late gets ErrStale.
func Charge(ctx context.Context, service, work string, amount, fence int64) (first bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, service, strings.NewReader(fmt.Sprintf(`{"amount": %d}`, amount)))
	if err != nil {
		return false, err
	}
	r.Header.Set("Idempotency-Key", work)
	r.Header.Set("Lock-Fencing-Token", strconv.FormatInt(fence, 10))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusCreated:
		return true, nil
	case http.StatusOK:
		return false, nil
	case http.StatusPreconditionFailed:
		return false, ErrStale
	}
	return false, fmt.Errorf("charge: %s", answer.Status)
}
