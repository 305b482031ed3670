// Package interop shows, with the real libraries, that their locks and
// locksidecar's exclude each other on the same name. It has tests alone, and
// lives in this module so that the product does not depend on its peers.
package interop
