// Package openapi holds docs/openapi.yaml to the OpenAPI 3.1 standard and to
// the real program: a walk provokes what the document tells of and checks that
// it is told right, and that nothing else is answered.
package openapi
