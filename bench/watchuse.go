package main

import (
	"context"
	"math"
)

// useWatch looks at Redis and at the sidecars when a contest begins and when
// it ends.
type useWatch struct {
	ctx      context.Context
	store    *redisServer
	sidecars []*server // none for other subjects

	looked bool
	// Since the first look.
	used    usage
	counted tally
}

func watchUse(ctx context.Context, store *redisServer, sidecars []*server) *useWatch {
	return &useWatch{ctx: ctx, store: store, sidecars: sidecars}
}

func (w *useWatch) look() error {
	counted, err := tallyUp(w.ctx, w.sidecars)
	if err != nil {
		return err
	}
	used, err := w.store.usage(w.ctx)
	if err != nil {
		return err
	}
	if w.looked {
		used, counted = used.since(w.used), counted.since(w.counted)
		used.commands-- // the first look
	}
	w.used, w.counted, w.looked = used, counted, true
	return nil
}

// oneDigit rounds what is judged by one digit: looks are taken while calls are
// on their way.
func oneDigit(v float64) float64 { return math.Round(10*v) / 10 }
