// Package charttest holds the tests of the charts and of the plain manifests.
package charttest

//go:generate go run ./genreadme ../locksidecar
