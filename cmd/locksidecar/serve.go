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
	"github.com/locksidecar/locksidecar/internal/locker/statedir"
	"github.com/locksidecar/locksidecar/internal/metrics"
)

// sidecar is all parts of a serving process, joined.
type sidecar struct {
	*engine
	settings Settings
	log      *slog.Logger
	state    *statedir.Dir // nil for none
	api      *httpapi.Server
	admin    *httpapi.Server // nil if there is no admin door
	quit     chan struct{}   // POST /quit
	exit     func(code int)
	started  atomic.Bool
}

// serve builds the parts from the store outwards, serves until a signal or
// POST /quit, and takes them down from the doors inwards. The last line of the
// log says what became of the locks.
//
// exit is called if that has to end the process at once.
func serve(s Settings, hostname string, build BuildInfo, log *slog.Logger, exit func(code int)) error {
	// A signal that comes while the parts are built must not kill us.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)

	c, err := assemble(s, hostname, build, log)
	if err != nil {
		return err
	}
	c.exit = exit
	err = c.awaitSafety(signals)
	if err == nil {
		err = c.store.agree(context.Background())
	}
	if err != nil {
		c.closeState()
		c.store.close()
		if errors.Is(err, errStopped) {
			return nil
		}
		return err
	}
	doors, adminDoor, err := openDoors(s, log)
	if err != nil {
		c.closeState()
		c.store.close()
		return err
	}
	c.logStart(build, doors, adminDoor)

	ctx, cancel := context.WithCancel(context.Background())
	var inner sync.WaitGroup // what must outlive the doors
	inner.Go(func() { c.run(ctx) })
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
	bySignal := false
	select {
	case sig := <-signals:
		bySignal = true
		log.Info("shutting down", "signal", sig.String())
	case <-c.quit:
		log.Info("shutting down", "reason", "POST /quit")
	case failure = <-failed:
		log.Error("a door has failed: shutting down", "err", failure)
	}
	counts := c.shutDown(signals, bySignal)
	serving.Wait()
	cancel()
	inner.Wait()
	c.closeState()
	c.store.close()
	log.Info("stopped", "dropped", counts.Dropped, "released", counts.Released,
		"unconfirmed", counts.Unconfirmed, "left_to_expire", counts.Left)
	return failure
}

// assemble builds the parts, and takes up what an earlier process has left in
// the state directory; it opens no door and starts nothing.
func assemble(s Settings, hostname string, build BuildInfo, log *slog.Logger) (*sidecar, error) {
	state, saved, err := openState(s, log)
	if err != nil {
		return nil, err
	}
	c, err := join(s, hostname, build, state, log)
	if err != nil && state != nil {
		state.Close()
	}
	if err != nil {
		return nil, err
	}
	c.restore(saved)
	return c, nil
}

// join builds the parts.
func join(s Settings, hostname string, build BuildInfo, state *statedir.Dir, log *slog.Logger) (*sidecar, error) {
	st, err := openStore(s, log)
	if err != nil {
		return nil, err
	}
	c := &sidecar{settings: s, log: log, state: state, quit: make(chan struct{}, 1)}
	meter := metrics.New(metrics.Config{
		Version: build.Version, Commit: build.Commit, GoVersion: build.Go,
		Mode: string(s.RedisMode), Scope: scope(s), MetricKeys: s.MetricKeys,
		Stats:   func() locker.Stats { return c.locks.Stats() },
		HeldKey: func(k locker.Key) bool { return c.locks.Holds(k) },
		StoreUp: st.isUp, NodesUp: st.nodesUp, Warnings: st.warningsByCheck, Log: log,
	})
	if c.engine, err = newEngine(s, st, meter.Backend(st.Backend), meter, c.journal(), log); err != nil {
		return nil, err
	}
	c.api = httpapi.New(httpapi.Config{
		Locks: c.locks, Log: log, Version: build.Version, Holder: s.Holder,
		Backend: s.Topology(), Scope: scope(s), Reserved: []string{hostname}, Journaled: state != nil,
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
	h := httpapi.Health{
		Problem: c.store.problem(ctx), Journal: c.stateProblem(), Draining: c.locks.Draining(), Warnings: c.store.warningTexts(),
	}
	if h.Journal != "" {
		h.Warnings = append(h.Warnings, h.Journal)
	}
	return h
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
