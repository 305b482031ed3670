package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/locksidecar/locksidecar/internal/httpapi"
	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/metrics"
	"github.com/locksidecar/locksidecar/internal/renewer"
)

// sidecar is all parts of a serving process, joined.
type sidecar struct {
	settings Settings
	log      *slog.Logger
	store    *store
	locks    *locker.Locker
	dog      *renewer.Watchdog
	api      *httpapi.Server
	admin    *httpapi.Server // nil if there is no admin door
	quit     chan struct{}   // POST /quit
	started  atomic.Bool
}

// serve builds the parts from the store outwards, serves until a signal or
// POST /quit, and takes them down from the doors inwards. The last line of the
// log says what became of the locks.
func serve(s Settings, hostname string, build BuildInfo, log *slog.Logger) error {
	// A signal that comes while the parts are built must not kill us.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)

	c, err := assemble(s, hostname, build, log)
	if err != nil {
		return err
	}
	doors, adminDoor, err := openDoors(s, log)
	if err != nil {
		c.store.close()
		return err
	}
	c.logStart(build, doors, adminDoor)

	ctx, cancel := context.WithCancel(context.Background())
	var inner sync.WaitGroup // what must outlive the doors
	inner.Go(func() { c.dog.Run(ctx, c.locks) })
	inner.Go(func() { c.locks.Run(ctx) })
	inner.Go(func() { c.store.watch(ctx) })
	limitMemory(s)
	inner.Go(func() { trimMemory(ctx) })

	failed := make(chan error, 2)
	var serving sync.WaitGroup
	serving.Go(func() { failed <- c.api.Serve(doors...) })
	if c.admin != nil {
		serving.Go(func() { failed <- c.admin.Serve(adminDoor) })
	}
	c.started.Store(true)

	var failure error
	select {
	case sig := <-signals:
		log.Info("shutting down", "signal", sig.String())
	case <-c.quit:
		log.Info("shutting down", "reason", "POST /quit")
	case failure = <-failed:
		log.Error("a door has failed: shutting down", "err", failure)
	}
	counts := c.shutDown(signals)
	serving.Wait()
	cancel()
	inner.Wait()
	c.store.close()
	log.Info("stopped", "dropped", counts.Dropped, "released", counts.Released,
		"unconfirmed", counts.Unconfirmed, "left_to_expire", counts.Left)
	return failure
}

// assemble builds the parts; it opens nothing and starts nothing.
func assemble(s Settings, hostname string, build BuildInfo, log *slog.Logger) (*sidecar, error) {
	st, err := openStore(s, log)
	if err != nil {
		return nil, err
	}
	c := &sidecar{settings: s, log: log, store: st, quit: make(chan struct{}, 1), dog: renewer.New(locker.BootTime)}
	meter := metrics.New(metrics.Config{
		Version: build.Version, Commit: build.Commit, GoVersion: build.Go,
		Mode: string(s.RedisMode), Scope: scope(s), MetricKeys: s.MetricKeys,
		Stats:   func() locker.Stats { return c.locks.Stats() },
		HeldKey: func(k locker.Key) bool { return c.locks.Holds(k) },
		StoreUp: st.isUp, Warnings: st.warningsByCheck, Log: log,
	})
	c.locks, err = locker.New(locker.Config{
		Holder: s.Holder, StoreTimeout: s.StoreTimeout, MaxHeld: s.MaxHeld, MaxWaiters: s.MaxWaiters, MaxTTL: s.MaxTTL,
		Observer: meter, Log: log,
	}, meter.Backend(st.Backend), c.dog)
	if err != nil {
		return nil, err
	}
	c.api = httpapi.New(httpapi.Config{
		Locks: c.locks, Log: log, Version: build.Version, Holder: s.Holder, Reserved: []string{hostname},
		DefaultTTL: s.DefaultTTL, MaxTTL: s.MaxTTL, DefaultMaxHold: s.DefaultMaxHold, MaxWait: s.MaxWait,
		AllowedHosts: s.AllowedHosts, Token: s.TokenSource(), Quit: c.askToQuit, Health: c.health,
	})
	if !s.AdminListen.Off() {
		c.admin = httpapi.NewAdmin(httpapi.AdminConfig{
			Metrics: meter.Handler(), Live: c.live, Started: c.started.Load, Health: c.health, Log: log,
		})
	}
	return c, nil
}

// scope names the locks that this sidecar deals in: sidecars of the same scope
// exclude each other.
func scope(s Settings) string {
	if s.RedisMode == ModeMemory {
		return metrics.Scope("", "", fmt.Sprintf("memory of process %d", os.Getpid()))
	}
	return metrics.Scope(s.KeyPrefix, fmt.Sprint(s.RedisDB), s.Topology())
}

func (c *sidecar) askToQuit() {
	select {
	case c.quit <- struct{}{}:
	default:
	}
}

func (c *sidecar) live() error {
	if c.dog.Stuck() {
		return errors.New("the watchdog is stuck: locks are not renewed")
	}
	return nil
}

func (c *sidecar) health(ctx context.Context) httpapi.Health {
	return httpapi.Health{
		Problem: c.store.problem(ctx), Draining: c.locks.Draining(), Warnings: c.store.warningTexts(),
	}
}

// openDoors opens the API's doors and the admin door; the latter is nil if
// there is to be none.
func openDoors(s Settings, log *slog.Logger) (api []net.Listener, admin net.Listener, err error) {
	var addresses []string
	for _, a := range s.Listen {
		addresses = append(addresses, a.String())
	}
	api, err = httpapi.OpenDoors(strings.Join(addresses, ","), s.APITokenFile != "", log)
	if err != nil {
		return nil, nil, err
	}
	if s.AdminListen.Off() {
		return api, nil, nil
	}
	admin, err = net.Listen(s.AdminListen.Network, s.AdminListen.Address)
	if err != nil {
		for _, door := range api {
			_ = door.Close()
		}
		return nil, nil, fmt.Errorf("open the admin door: %w", err)
	}
	return api, admin, nil
}

// logStart says what was really set up, so that two sidecars that do not
// exclude each other can be told apart.
func (c *sidecar) logStart(build BuildInfo, doors []net.Listener, admin net.Listener) {
	var addresses []string
	for _, door := range doors {
		addresses = append(addresses, door.Addr().String())
	}
	adminAddress := "off"
	if admin != nil {
		adminAddress = admin.Addr().String()
	}
	c.log.Info("listening", "version", build.Version, "backend", c.settings.RedisMode,
		"topology", c.settings.Topology(), "prefix", c.settings.KeyPrefix, "database", c.settings.RedisDB,
		"holder", c.settings.Holder, "scope", scope(c.settings), "shutdown_mode", c.settings.ShutdownMode,
		"api", addresses, "admin", adminAddress)
}
