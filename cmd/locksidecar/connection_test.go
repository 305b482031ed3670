package main

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/client"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

// The client is tested against made-up servers in its own room; here it meets
// the real one.
func TestTheClientReadsWhatTheSidecarStreams(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p, other := on(t, r), on(t, r)
	c, err := client.New(client.Config{URL: p.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	bound, err := c.Bind(t.Context(), "k", client.Request{TTL: new(3 * time.Second), Owner: "w1"})
	if err != nil {
		t.Fatal(err)
	}
	defer bound.Close()
	if g := bound.Grant; g.Key != "k" || g.Bind != "connection" || g.FencingToken == 0 || g.ValidUntil <= c.Now() || !g.Renew {
		t.Errorf("the grant: %+v", g)
	}
	watch, err := c.Watch(t.Context(), "k", client.Handle{Fence: bound.Grant.FencingToken})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	for name, s := range map[string]*client.Stream{"bound": bound, "watch": watch} {
		e, err := s.Next(t.Context())
		for err == nil && e.Kind == client.EventAtRisk { // on a machine that is busy with other tests
			e, err = s.Next(t.Context())
		}
		if err != nil || e.Kind != client.EventRenewed || e.ValidUntil <= bound.Grant.ValidUntil {
			t.Errorf("%s: %+v, error %v; want a renewal", name, e, err)
		}
	}

	other.POST("k").Finally(t, http.StatusConflict, "held")
	bound.Close()
	for e, err := watch.Next(t.Context()); ; e, err = watch.Next(t.Context()) {
		if err != nil || e.Kind == client.EventReleased {
			if err != nil {
				t.Errorf("the watch ended with %v before it told of the release", err)
			}
			break
		}
	}
	if _, err := watch.Next(t.Context()); !errors.Is(err, client.ErrStreamEnded) {
		t.Errorf("after the last event: %v", err)
	}
	other.POST("k", "wait=5s").Finally(t, http.StatusCreated, "held")

	var refused *client.RefusedError
	if _, err := c.Bind(t.Context(), "k", client.Request{Wait: new(50 * time.Millisecond)}); !errors.As(err, &refused) || refused.Code != "wait_timeout" {
		t.Errorf("a lock that another has: %v", err)
	}
	if _, err := c.Watch(t.Context(), "k", client.Handle{}); !errors.As(err, &refused) || refused.Code != "not_held" {
		t.Errorf("a watch of what is not held: %v", err)
	}

	lost, err := c.Bind(t.Context(), "lost", client.Request{TTL: new(3 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	defer lost.Close()
	recordOf(t).storeLost("lost")
	r.Do("DEL", "lock:lost")
	for {
		e, err := lost.Next(t.Context())
		if err != nil {
			t.Fatalf("the stream ended with %v before it told of the loss", err)
		}
		if e.Kind == client.EventLost {
			if e.Cause != "gone" || e.FencingToken != lost.Grant.FencingToken {
				t.Errorf("%+v", e)
			}
			break
		}
	}
}
