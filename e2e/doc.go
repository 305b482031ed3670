// Package e2e holds the tests that run locksidecar in a Kubernetes cluster of
// their own, made by kind. They look from outside, as a user would: nothing of
// the product is imported. README.md says how to run them.
package e2e
