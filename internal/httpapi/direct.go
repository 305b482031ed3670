package httpapi

import (
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// Wanted reads what a lock is to be like from the parameters of a POST, for a
// command that asks the Locker itself. Of the Config only the defaults, the
// bounds and the names that are no owner's are used. [Problem] tells its error.
func Wanted(cfg Config, key locker.Key, parameters url.Values) (locker.Request, error) {
	a := api{Config: cfg}
	return a.acquireRequest(&http.Request{URL: &url.URL{Path: locksPath + string(key), RawQuery: parameters.Encode()}})
}

// Problem returns the body of the answer that the API gives to an error.
func Problem(err error) json.RawMessage {
	body, err := json.Marshal(problemOf(unresolved(err)))
	if err != nil { // its fields are texts and numbers
		panic(err)
	}
	return body
}
