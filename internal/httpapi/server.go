package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

const (
	// headerTimeout and readTimeout bound how long a request may take to
	// arrive. net/http lifts both once the body has been read to its end, so
	// they cut no wait. There is no http.Server.WriteTimeout, which would:
	// answers have a deadline of their own (see respond).
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second

	// idleTimeout closes kept-alive connections that have told of no lock.
	idleTimeout = 3 * time.Minute

	maxHeaderBytes = 16 << 10 // net/http adds 4 KiB to it; 431 above
)

// Server serves a door on its listeners.
type Server struct {
	http  http.Server
	conns *conns // nil where connections are not followed
	stop  func() // ends what would otherwise go on for as long as its caller likes
}

// New returns the API's server. It listens nowhere until Serve.
func New(cfg Config) *Server {
	if cfg.MaxConnections == 0 {
		cfg.MaxConnections = 8192
	}
	if cfg.Now == nil {
		cfg.Now = locker.BootTime
	}
	a := newAPI(cfg)
	s := newServer(a, cfg.Log)
	s.stop = a.feeds.end
	s.conns = &conns{locks: cfg.Locks, limit: int64(cfg.MaxConnections), idle: idleTimeout, detachAfter: detachAfter, alarms: newAlarms(cfg.Now)}
	s.http.IdleTimeout = parkAfter
	s.http.ConnContext = withConn
	s.http.ConnState = noteState
	return s
}

func newServer(h http.Handler, log *slog.Logger) *Server {
	return &Server{stop: func() {}, http: http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		// What net/http has to say is about broken clients.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		// "OPTIONS *" is a method like any other that is not served.
		DisableGeneralOptionsHandler: true,
	}}
}

// Handler returns what the server serves. Served by another server, it still
// works, but learns less of whether its answers arrive.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// Serve accepts on the listeners until Shutdown and then returns nil, or until
// one of them fails, which ends the others. It closes all of them.
func (s *Server) Serve(listeners ...net.Listener) error {
	if s.conns != nil {
		defer s.conns.openLot().close()
		defer s.conns.confirming.Wait()
		stop := make(chan struct{})
		var alarms sync.WaitGroup
		alarms.Go(func() { s.conns.alarms.run(stop) })
		defer alarms.Wait()
		defer close(stop)
	}
	var wg sync.WaitGroup
	errs := make([]error, len(listeners))
	for i, l := range listeners {
		if s.conns != nil {
			l = s.conns.listen(l)
		}
		wg.Go(func() {
			if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				errs[i] = err
				s.close()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Shutdown closes the listeners and waits for the requests that are being
// served, and until it is settled what became of their answers. When ctx is
// over it cuts the rest off and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.conns != nil {
		s.conns.endParked()
		s.conns.endStreams()
	}
	s.stop()
	err := s.http.Shutdown(ctx)
	if err == nil && s.conns != nil {
		err = s.conns.settled(ctx)
	}
	if err != nil {
		s.close()
	}
	return err
}

// close cuts all connections. The conns are told first, since net/http closes
// them one after the other and none may linger then.
func (s *Server) close() {
	if s.conns != nil {
		s.conns.hurry.Store(true)
		s.conns.closeAttended()
	}
	_ = s.http.Close()
}
