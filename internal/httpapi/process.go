package httpapi

import (
	"context"
	"net/http"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// list answers GET and HEAD /locks.
func (a *api) list(w http.ResponseWriter, r *http.Request) error {
	if in := newInput(r); in.err != nil {
		return in.err
	}
	list := struct {
		Locks []entry `json:"locks"`
	}{Locks: []entry{}}
	for _, e := range a.Locks.List() {
		list.Locks = append(list.Locks, describeEntry(e))
	}
	return respondJSON(w, list)
}

// releaseMany answers DELETE /locks.
func (a *api) releaseMany(w http.ResponseWriter, r *http.Request) error {
	in := newInput(r, paramOwner, paramAll)
	owner, all := in.owner(), in.flag(paramAll, false)
	switch {
	case in.err != nil:
		return in.err
	case owner == "" && !all:
		return refuse("invalid_parameter", "say which: owner=… or all=true")
	case owner != "" && all:
		return refuse("invalid_parameter", "owner and all=true contradict each other; give one")
	}
	done := struct {
		Released    []locker.Key `json:"released"`
		Unconfirmed []locker.Key `json:"unconfirmed"`
	}{[]locker.Key{}, []locker.Key{}}
	released, unconfirmed := a.Locks.ReleaseWhere(context.WithoutCancel(r.Context()), owner, all)
	done.Released = append(done.Released, released...)
	done.Unconfirmed = append(done.Unconfirmed, unconfirmed...)
	return respondJSON(w, done)
}

// drain answers POST /drain.
func (a *api) drain(w http.ResponseWriter, r *http.Request) error {
	if in := newInput(r); in.err != nil {
		return in.err
	}
	a.Log.Info("told to drain: new locks are refused from now on")
	a.Locks.Drain()
	respondEmpty(w, http.StatusNoContent)
	return nil
}

// quit answers POST /quit, and begins the shutdown once the answer is on its
// way.
func (a *api) quit(w http.ResponseWriter, r *http.Request) error {
	if in := newInput(r); in.err != nil {
		return in.err
	}
	a.Log.Info("told to quit")
	defer a.Quit()
	w.Header().Set("Connection", "close")
	respondEmpty(w, http.StatusAccepted)
	_ = http.NewResponseController(w).Flush()
	return nil
}
