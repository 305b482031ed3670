package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// Entry is one row of the list: a lock that is held, asked for, waited for,
// being released or lost.
type Entry struct {
	State string    `json:"state"`
	Key   string    `json:"key"`
	Owner string    `json:"owner"`
	Note  string    `json:"note"`
	At    time.Time `json:"at"` // when the state began
	Held  *Grant    `json:"held"`
	Lost  *Loss     `json:"lost"`
}

// Loss says how a grant was lost.
type Loss struct {
	FencingToken int64     `json:"fencing_token"`
	Cause        string    `json:"cause"`
	LostAt       time.Time `json:"lost_at"`
}

// List is what a sidecar has to do with at one moment, newest first.
type List struct {
	Locks []Entry         `json:"locks"`
	Raw   json.RawMessage `json:"-"`
}

// List tells of all locks that the sidecar has to do with.
func (c *Client) List(ctx context.Context) (List, error) {
	var l List
	err := c.ask(ctx, http.MethodGet, "/locks", nil, &l, &l.Raw)
	return l, err
}

// Released says what became of many releases.
type Released struct {
	Released    []string        `json:"released"`
	Unconfirmed []string        `json:"unconfirmed"` // not renewed any more; the sidecar repeats their release
	Raw         json.RawMessage `json:"-"`
}

// ReleaseWhere gives back what the owner holds, or everything.
func (c *Client) ReleaseWhere(ctx context.Context, owner string, all bool) (Released, error) {
	v := make(url.Values)
	setText(v, "owner", owner)
	if all {
		v.Set("all", "true")
	}
	var r Released
	err := c.ask(ctx, http.MethodDelete, "/locks", v, &r, &r.Raw)
	return r, err
}

// Sidecar is how a sidecar is doing.
type Sidecar struct {
	Version  string          `json:"version"`
	Holder   string          `json:"holder"`
	Store    string          `json:"store"` // ok, or what is wrong
	Draining bool            `json:"draining"`
	Warnings []string        `json:"warnings"`
	Locks    map[string]int  `json:"locks"` // how many, by state
	Raw      json.RawMessage `json:"-"`
}

// Status tells how the sidecar is doing.
func (c *Client) Status(ctx context.Context) (Sidecar, error) {
	var s Sidecar
	err := c.ask(ctx, http.MethodGet, "/", nil, &s, &s.Raw)
	return s, err
}

// Drain has the sidecar refuse new grants from now on.
func (c *Client) Drain(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodPost, "/drain", nil)
	return err
}

// Quit has the sidecar shut down as on SIGTERM. It returns when that begins.
func (c *Client) Quit(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodPost, "/quit", nil)
	return err
}

func (c *Client) ask(ctx context.Context, method, path string, v url.Values, into any, raw *json.RawMessage) error {
	a, err := c.do(ctx, method, path, v)
	if err != nil {
		return err
	}
	if err := c.decode(a, into); err != nil {
		return err
	}
	*raw = a.body
	return nil
}
