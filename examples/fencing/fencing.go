// Package fencing shows how a resource refuses a writer whose lock is lost.
//
// A lock cannot stop its holder: a process that was paused, or a request that
// was delayed on its way, can arrive after the lock has passed to another. The
// fencing token rises from grant to grant, so a resource that remembers the
// greatest it has seen can tell the stale writer from the present one. Each
// file is one way to do it.
package fencing

import "errors"

// ErrStale says that a writer was refused since a later holder has been there.
var ErrStale = errors.New("a later holder of the lock has written already")
