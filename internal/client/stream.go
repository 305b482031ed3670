package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// EventKind is one of the words that an Event can have. Others may come with
// later versions of the sidecar and can be passed over.
type EventKind string

const (
	EventHeld     EventKind = "held"     // held, or held again after at_risk
	EventRenewed  EventKind = "renewed"  // valid for longer
	EventAtRisk   EventKind = "at_risk"  // a renewal is overdue
	EventDraining EventKind = "draining" // the sidecar is about to stop
	EventLost     EventKind = "lost"     // not held any more; see the cause
	EventReleased EventKind = "released" // not held any more: it was given back
)

// Event is a word of the sidecar on one grant.
type Event struct {
	Kind         EventKind `json:"-"`
	FencingToken int64     `json:"fencing_token"` // 0 if the event does not tell it
	Cause        string    `json:"cause"`         // of a loss
	LostAt       time.Time `json:"lost_at"`
	Validity

	// ValidUntil is how long the lock may be relied on, on the clock of
	// [Client.Now], as far as this event tells. Of a lock that is not held any
	// more it is until when nobody else can have it.
	ValidUntil locker.Instant `json:"-"`

	Raw json.RawMessage `json:"-"` // the event's data as it came
}

// Stream tells of one grant. With Bind the grant lives exactly as long as the
// stream.
type Stream struct {
	// Grant is the lock, as the stream's first event told it.
	Grant Grant

	client *Client
	lines  *bufio.Reader
	end    context.CancelFunc
	body   io.Closer

	events chan Event
	err    error         // why there are no more events; set before events is closed
	done   chan struct{} // closed by Close
	once   sync.Once
	reader sync.WaitGroup
}

// Bind takes a lock that lives as long as the stream: until Close, or until
// this process has ended. It waits for the lock as long as r says and ctx
// allows; after that, ctx has no hold on the stream.
func (c *Client) Bind(ctx context.Context, key string, r Request) (*Stream, error) {
	v := r.Parameters()
	v.Set("bind", "connection")
	return c.stream(ctx, http.MethodPost, lockPath(key), v)
}

// Watch tells of a lock that the sidecar holds, without owning it.
func (c *Client) Watch(ctx context.Context, key string, h Handle) (*Stream, error) {
	return c.stream(ctx, http.MethodGet, lockPath(key), h.parameters())
}

func (c *Client) stream(ctx context.Context, method, path string, v map[string][]string) (*Stream, error) {
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	release := context.AfterFunc(ctx, end)
	res, err := c.send(lasting, method, path, v, typeEvents)
	if err != nil {
		release()
		end()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	s := &Stream{
		client: c, lines: bufio.NewReaderSize(res.Body, 4<<10), end: end, body: res.Body,
		events: make(chan Event), done: make(chan struct{}),
	}
	err = s.begin(res)
	if !release() {
		// ctx ended while the first event came in.
		err = context.Cause(ctx)
	}
	if err != nil {
		s.hangUp()
		return nil, err
	}
	s.reader.Go(s.read)
	return s, nil
}

// begin reads the head of the answer and the first event.
func (s *Stream) begin(res *http.Response) error {
	if res.StatusCode < 200 || res.StatusCode > 299 {
		body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
		if err != nil {
			return &UnreachableError{URL: s.client.address.url, Asked: true, Err: err}
		}
		return refused(res, body)
	}
	if !hasType(res, typeEvents) {
		return &UnreachableError{URL: s.client.address.url, Asked: true, Err: errors.New("the answer is no stream of events")}
	}
	first, err := s.event()
	if err != nil {
		return &UnreachableError{URL: s.client.address.url, Asked: true, Err: err}
	}
	if first.Kind != EventHeld && first.Kind != EventAtRisk {
		return fmt.Errorf("%w before it told of a lock: %s", ErrStreamEnded, first.Kind)
	}
	if err := json.Unmarshal(first.Raw, &s.Grant); err != nil {
		return &UnreachableError{URL: s.client.address.url, Asked: true, Err: errors.New("the first event cannot be read")}
	}
	s.Grant.Raw, s.Grant.ValidUntil = first.Raw, first.ValidUntil
	s.Grant.Repeated = res.StatusCode == http.StatusOK
	return nil
}

// read passes events on until there are no more.
func (s *Stream) read() {
	defer close(s.events)
	for {
		e, err := s.event()
		if err != nil {
			s.err = err
			return
		}
		select {
		case s.events <- e:
		case <-s.done:
			s.err = ErrStreamEnded
			return
		}
	}
}

// Next returns the next event after the one in Grant. The error is
// [ErrStreamEnded], perhaps wrapped, once the stream is over, which of a bound
// lock means that it is not held; or ctx's, after which Next can be called
// again. A stream may be silent for as long as it likes, also because the
// sidecar hangs: only ValidUntil says how long the lock may be relied on.
func (s *Stream) Next(ctx context.Context) (Event, error) {
	select {
	case e, ok := <-s.events:
		if !ok {
			return Event{}, s.err
		}
		return e, nil
	case <-ctx.Done():
		return Event{}, context.Cause(ctx)
	}
}

// Close ends the stream, and with it the lock if it was bound. It may be
// called more than once and while Next waits.
func (s *Stream) Close() {
	s.once.Do(func() { close(s.done) })
	s.hangUp()
	s.reader.Wait()
}

func (s *Stream) hangUp() {
	s.end()
	_ = s.body.Close() // the connection is gone either way
}

// event reads the next event and places its validity on our clock.
func (s *Stream) event() (Event, error) {
	kind, data, err := readEvent(s.lines)
	if err != nil {
		return Event{}, fmt.Errorf("%w: %w", ErrStreamEnded, err)
	}
	e := Event{Kind: EventKind(kind), Raw: data}
	if len(data) > 0 {
		if err := json.Unmarshal(data, &e); err != nil {
			return Event{}, fmt.Errorf("%w: the event %q cannot be read", ErrStreamEnded, kind)
		}
	}
	e.ValidUntil = s.client.validUntil(e.Validity, s.client.clock())
	return e, nil
}
