package openapi

import (
	"net/http"
	"strings"

	"github.com/locksidecar/locksidecar/acceptance/sidecar"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

// walkLosses takes locks away in the store.
func walkLosses(w *walk, server *redistest.Server) {
	s := w.stream(201, acquire("k", "bind=connection&ttl=5s")) // renewed in time also by one who stands still for a while
	s.await("held")
	server.Do("DEL", "lock:k")
	if data := s.await("lost"); data["cause"] != "gone" {
		w.t.Errorf("told %v", data)
	}
	s.ended()
	w.expect("201", acquire("k", "ttl=5s"))
	server.Do("SET", "lock:k", "another", "PX", "60000")
	sidecar.Eventually(w.t, "the loss is told", func() bool { return w.send(get("k", "")).status == http.StatusGone })
	if a := w.expect("410 lost", get("k", "")); !strings.Contains(string(a.body), `"taken"`) {
		w.t.Errorf("told %s", a.body)
	}
}

// walkOthers meets what others have written.
func walkOthers(w *walk, server *redistest.Server) {
	server.Do("SET", "lock:forever", "x")
	server.Do("RPUSH", "lock:list", "x")
	w.expect("422 key_conflict", acquire("forever", ""))
	w.expect("422 key_conflict", acquire("list", "wait=1s"))

	// Of another library's lock nobody is told who has it.
	server.Do("SET", "lock:k", "x", "PX", "60000")
	if a := w.expect("404 not_held", get("k", "")); !strings.Contains(string(a.body), `"holder":null`) {
		w.t.Errorf("told %s", a.body)
	}
	w.expect("409 held", acquire("k", ""))

	// One waits, and has not heard yet that the lock is free.
	for free := false; !free; {
		server.Do("SET", "lock:k", "x", "PX", "60000")
		next := w.later(acquire("k", "wait=10s&owner=w1"))
		sidecar.Eventually(w.t, "it is in line", func() bool {
			return strings.Contains(string(w.send(get("k", "")).body), `"queue_length":1`)
		})
		server.Do("DEL", "lock:k")
		free = w.send(acquire("k", "")).code() == "queued"
		w.settle("201", next)
		w.expect("204", release("k", "owner=w1"))
	}
}

// walkFaults has the store refuse, for certain.
func walkFaults(w *walk, server *redistest.Server) {
	w.expect("201", acquire("held", "ttl=1m"))
	w.expect("201", acquire("release", "ttl=1m"))

	server.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	w.expect("503 store_write_refused", acquire("k", ""))
	w.expect("503 store_write_refused", extend("held", ""))
	server.Do("CONFIG", "SET", "min-replicas-to-write", "0")

	server.Do("ACL", "SETUSER", "default", "-evalsha", "-eval")
	w.expect("503 store_auth_failed", acquire("k", ""))
	w.expect("503 store_auth_failed", extend("held", ""))
	server.Do("ACL", "SETUSER", "default", "+evalsha", "+eval")

	server.Do("HSET", "lock:#grant:{lock:k}", "fence", "none")
	w.expect("503 store_error", acquire("k", ""))
	server.Do("DEL", "lock:#grant:{lock:k}")

	busy := server.Dial()
	defer busy.Close()
	if err := busy.Send("EVAL", "while true do end", "0"); err != nil {
		w.t.Fatal(err)
	}
	sidecar.Eventually(w.t, "the store is busy", func() bool {
		_, err := server.Try("GET", "x")
		return err != nil && strings.HasPrefix(err.Error(), "BUSY")
	})
	w.expect("503 store_busy", acquire("k", ""))
	w.expect("503 store_busy", extend("held", ""))
	w.expect("503 release_unconfirmed", release("release", ""))
	if a := w.expect("404 not_held", get("k", "")); !strings.Contains(string(a.body), `"unknown"`) {
		w.t.Errorf("told %s", a.body)
	}
	w.expect("200", call{method: "GET", path: "/locks"}) // with a release that is not confirmed
	server.Do("SCRIPT", "KILL")
	sidecar.Eventually(w.t, "the release is confirmed", func() bool { return w.send(get("release", "")).status == http.StatusNotFound })
}

// walkFrozen has the store answer nothing for a while.
func walkFrozen(w *walk, server *redistest.Server) {
	s := w.stream(201, acquire("bound", "bind=connection&ttl=10s"))
	s.await("held")
	w.expect("201", acquire("held", "ttl=1m"))
	w.expect("201", acquire("a", "ttl=1m&owner=w1"))
	w.expect("200", extend("held", ""))
	server.Stop()
	// What is sent over a connection that is open, as those now are, is in
	// doubt; once they have been given up, it is certain that nothing is sent.
	for _, c := range []struct {
		outcome string
		call
	}{
		{"503 extend_unconfirmed", extend("held", "")},
		{"503 acquire_unresolved", acquire("k", "")},
		{"503 release_unconfirmed", release("held", "")},
		{"200", call{method: "DELETE", path: "/locks", form: "owner=w1"}},
	} {
		c.once = true // each takes the store's timeout
		w.expect(c.outcome, c.call)
	}
	s.await("at_risk")
	server.Cont()
	s.await("held")
	s.close()
}

// walkGone has no store at all.
func walkGone(w *walk, server *redistest.Server) {
	w.expect("201", acquire("held", "ttl=1m"))
	server.Kill()
	w.expect("503 store_unavailable", acquire("k", ""))
	w.expect("503 store_unavailable", extend("held", ""))
	w.expect("503", call{method: "GET", path: "/readyz"})
	if a := w.expect("200", call{method: "GET", path: "/"}); strings.Contains(string(a.body), `"store":"ok"`) {
		w.t.Errorf("told %s", a.body)
	}
}

// walkReplicas has the one replica that must acknowledge stand still.
func walkReplicas(w *walk, r *redistest.Replicated) {
	for _, c := range []call{acquire("held", "ttl=1m"), get("held", ""), extend("held", "")} {
		a := w.send(c)
		for range 20 { // a replica that gets no processor for a while is one too few
			if a.status < 500 {
				break
			}
			a = w.send(c)
		}
		if a.status >= 300 || !strings.Contains(string(a.body), `"acked_replicas":1`) {
			w.t.Errorf("%s: %s %s", c, a.outcome(), a.body)
		}
	}
	r.Servers[1].Stop()
	w.expect("503 not_replicated", acquire("k", ""))
	w.expect("503 extend_unconfirmed", extend("held", ""))
	w.expect("204", release("held", ""))
	r.Servers[1].Cont()
}
