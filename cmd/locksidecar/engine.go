package main

import (
	"context"
	"log/slog"
	"sync"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/renewer"
)

// engine is what makes locks, whoever asks for them: the store, the table of
// what is held here, and the watchdog.
type engine struct {
	store *store
	locks *locker.Locker
	dog   *renewer.Watchdog
}

// newEngine joins the parts on a store; it starts nothing. The backend is the
// store, perhaps measured; the journal may be nil.
func newEngine(s Settings, st *store, backend locker.Backend, observer locker.Observer, journal locker.Journal, log *slog.Logger) (*engine, error) {
	e := &engine{store: st, dog: renewer.New(locker.BootTime)}
	var err error
	e.locks, err = locker.New(locker.Config{
		Holder: s.Holder, StoreTimeout: s.StoreTimeout, MaxHeld: s.MaxHeld, MaxWaiters: s.MaxWaiters, MaxTTL: s.MaxTTL,
		Observer: observer, Journal: journal, Log: log,
	}, backend, e.dog)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// run keeps the locks alive until ctx is over. It blocks.
func (e *engine) run(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() { e.dog.Run(ctx, e.locks) })
	parts.Go(func() { e.locks.Run(ctx) })
	parts.Go(func() { e.store.watch(ctx) })
	parts.Go(func() { e.store.follow(ctx, e.locks.Doubt) })
	parts.Wait()
}
