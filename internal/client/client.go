// Package client speaks the lock API of a sidecar, for the commands of this
// binary.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// DefaultURL is where a sidecar listens unless it is told otherwise.
const DefaultURL = "http://127.0.0.1:5625"

const (
	// dialTimeout bounds the opening of a connection. The sidecar is on this
	// machine: what does not answer within this is not there.
	dialTimeout = 2 * time.Second

	// maxAnswer keeps something that is no sidecar from filling our memory; a
	// list of 10,000 locks with long notes has a sixth of it.
	maxAnswer = 64 << 20

	typeForm    = "application/x-www-form-urlencoded"
	typeJSON    = "application/json"
	typeProblem = "application/problem+json"
	typeEvents  = "text/event-stream"
)

// Config says which sidecar is asked.
type Config struct {
	URL string // http://host:port or unix:///path; empty for DefaultURL

	// TokenFile holds the token that the sidecar demands; it is read for each
	// request. Empty if it demands none.
	TokenFile string

	// Clock judges how long leases are valid; nil for [locker.BootTime].
	Clock locker.Clock
}

// Client asks one sidecar. Each method returns once the answer is there or ctx
// is over, and opens no connection for longer than two seconds; a wait for the
// answer is bounded by ctx alone. Safe for concurrent use.
//
// The errors are a [*RefusedError] for an answer that is not a success, an
// [*UnreachableError] if there was none, a [*TokenError], or ctx's own.
type Client struct {
	address
	tokenFile string
	clock     locker.Clock
	http      *http.Client
}

// New returns a client. Nothing is opened or read before the first request.
func New(cfg Config) (*Client, error) {
	if cfg.URL == "" {
		cfg.URL = DefaultURL
	}
	if cfg.Clock == nil {
		cfg.Clock = locker.BootTime
	}
	a, err := parseAddress(cfg.URL)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	return &Client{address: a, tokenFile: cfg.TokenFile, clock: cfg.Clock, http: &http.Client{
		// A redirect would carry the token to wherever it points; a proxy of
		// the environment would see it, and knows another "localhost".
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy: nil,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, a.network, a.dial)
			},
			DisableCompression: true,
		},
	}}, nil
}

// URL says where the sidecar is asked.
func (c *Client) URL() string { return c.address.url }

// Now reads the clock that [Grant.ValidUntil] and [Event.ValidUntil] are on.
func (c *Client) Now() locker.Instant { return c.clock() }

// Close closes the connections that are idle.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// answer is what came back for one request.
type answer struct {
	status int
	body   json.RawMessage
	sent   locker.Instant // before the request was sent
}

// do asks and reads the answer to its end: a connection that is closed with
// bytes unread is reset, which the sidecar takes for an answer that was not
// heard.
func (c *Client) do(ctx context.Context, method, path string, parameters url.Values) (answer, error) {
	a := answer{sent: c.clock()}
	res, err := c.send(ctx, method, path, parameters, typeJSON)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	a.status = res.StatusCode
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return answer{}, c.unreachable(ctx, err)
	}
	a.body = body
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return answer{}, refused(res, body)
	}
	return a, nil
}

// send asks and returns as soon as the head of the answer is there.
func (c *Client) send(ctx context.Context, method, path string, parameters url.Values, accept string) (*http.Response, error) {
	// Form encoding keeps every byte, so that the sidecar can refuse invalid
	// UTF-8; JSON would replace it unasked.
	u := &url.URL{Scheme: "http", Host: c.address.host, Path: path}
	var body io.Reader
	encoded := parameters.Encode()
	if method == http.MethodPost || method == http.MethodPatch {
		body = strings.NewReader(encoded)
	} else {
		u.RawQuery = encoded
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", typeForm)
	}
	req.Header.Set("Accept", accept)
	if c.tokenFile != "" {
		token, err := readToken(c.tokenFile)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	return res, nil
}

// unreachable says that there was no answer, or no whole one.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err // without the method and URL, which say nothing new
	}
	var op *net.OpError
	return &UnreachableError{URL: c.address.url, Asked: !errors.As(err, &op) || op.Op != "dial", Err: err}
}

// decode reads an answer that was a success.
func (c *Client) decode(a answer, into any) error {
	if err := json.Unmarshal(a.body, into); err != nil {
		return &UnreachableError{URL: c.address.url, Asked: true,
			Err: errors.New("the answer is none of a locksidecar")}
	}
	return nil
}

// hasType tells whether the answer's body is of the type.
func hasType(res *http.Response, mediaType string) bool {
	got, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return err == nil && got == mediaType
}
