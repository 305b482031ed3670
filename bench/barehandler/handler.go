package main

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

type handler struct {
	rdb *redis.Client

	mu     sync.Mutex
	tokens map[string]string // by key
}

func (h *handler) acquire(w http.ResponseWriter, r *http.Request) {
	ttl, err := time.ParseDuration(r.FormValue("ttl"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	key, token := r.PathValue("key"), "ls1/bare/"+rand.Text()
	fence, err := acquireLock(r.Context(), h.rdb, key, token, ttl)
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	h.mu.Lock()
	h.tokens[key] = token
	h.mu.Unlock()

	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(struct { // the caller has gone if this fails
		Key   string `json:"key"`
		Fence int64  `json:"fencing_token"`
		TTL   int64  `json:"ttl_ms"`
	}{key, fence, ttl.Milliseconds()})
}

func (h *handler) release(w http.ResponseWriter, r *http.Request) {
	key := r.PathValue("key")
	h.mu.Lock()
	token := h.tokens[key]
	delete(h.tokens, key)
	h.mu.Unlock()

	if err := releaseLock(r.Context(), h.rdb, key, token); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
