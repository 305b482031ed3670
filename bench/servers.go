package main

import (
	"context"
	"fmt"
	"net/http"
)

// server is a process that speaks the lock API, or the part of it that a
// cycle needs.
type server struct {
	*process
	addr  string // of the API
	admin string // of health and metrics; empty if there is none
}

// startSidecar returns when the sidecar is ready.
func (l *lab) startSidecar(ctx context.Context, redisAddr string, settings ...string) (*server, error) {
	s, err := l.launchSidecar(redisAddr, settings...)
	if err != nil {
		return nil, err
	}
	if err := s.awaitStatus(ctx, "http://"+s.admin+"/readyz", http.StatusOK); err != nil {
		s.kill()
		return nil, err
	}
	return s, nil
}

// launchSidecar returns as soon as the process exists. It has the settings
// that a deployment has that sets nothing but the addresses, and what is given
// besides.
func (l *lab) launchSidecar(redisAddr string, settings ...string) (*server, error) {
	api, err := freeAddr()
	if err != nil {
		return nil, err
	}
	admin, err := freeAddr()
	if err != nil {
		return nil, err
	}
	p, err := start(nameSidecar, append([]string{
		"LOCKSIDECAR_REDIS_ADDRS=" + redisAddr,
		"LOCKSIDECAR_LISTEN=" + api,
		"LOCKSIDECAR_ADMIN_LISTEN=" + admin,
	}, settings...), l.sidecar)
	if err != nil {
		return nil, err
	}
	return &server{process: p, addr: api, admin: admin}, nil
}

func (l *lab) startBareHandler(ctx context.Context, redisAddr string) (*server, error) {
	s, err := l.launchBareHandler(redisAddr)
	if err != nil {
		return nil, err
	}
	if err := s.awaitStatus(ctx, "http://"+s.addr+"/", http.StatusNotFound); err != nil {
		s.kill()
		return nil, err
	}
	return s, nil
}

func (l *lab) launchBareHandler(redisAddr string) (*server, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	p, err := start(nameBareHandler, nil, l.bareHandler, "-redis", redisAddr, "-listen", addr)
	if err != nil {
		return nil, err
	}
	return &server{process: p, addr: addr}, nil
}

func (s *server) awaitStatus(ctx context.Context, url string, want int) error {
	return s.await(ctx, func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			return fmt.Errorf("GET %s: %s", url, resp.Status)
		}
		return nil
	})
}

func (l *lab) sidecarSubject(ctx context.Context, redisAddr string) (subject, error) {
	s, err := l.startSidecar(ctx, redisAddr)
	if err != nil {
		return subject{}, err
	}
	return s.subject(), nil
}

func (l *lab) bareHandlerSubject(ctx context.Context, redisAddr string) (subject, error) {
	s, err := l.startBareHandler(ctx, redisAddr)
	if err != nil {
		return subject{}, err
	}
	return s.subject(), nil
}

// subject makes the server one to be compared: every worker has a connection
// of its own.
func (s *server) subject() subject {
	return subject{
		name: s.name,
		open: func(ctx context.Context) (client, error) {
			conn, err := dialHTTP(ctx, s.addr)
			if err != nil {
				return nil, err
			}
			return &httpClient{conn: conn}, nil
		},
		stop: s.kill,
	}
}

type httpClient struct {
	conn   *httpConn
	target string
}

func (c *httpClient) Acquire(_ context.Context, key string) error {
	c.target = "/locks/" + key
	return c.conn.want(http.StatusCreated, http.MethodPost, c.target, "ttl=30s")
}

func (c *httpClient) Release(context.Context) error {
	return c.conn.want(http.StatusNoContent, http.MethodDelete, c.target, "")
}

func (c *httpClient) Close() { _ = c.conn.Close() }
