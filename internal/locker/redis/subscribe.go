package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// confirmEvery is how often a subscription is made again, as a sign of life that
// needs no further permission. A connection that was cut without a word is
// noticed after twice this.
const confirmEvery = 2 * time.Second

// hear listens to a channel of one server over one connection until that ends.
// It calls confirmed when it begins to, and got for each message.
func hear(ctx context.Context, c *connector, channel string, confirmed func(), got func(payload string)) error {
	l, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	s := &subscription{wire: l.wire, over: l.era.over, r: bufio.NewReader(l.wire), channel: channel}
	deadline := time.Now().Add(c.timeout)
	if err := s.subscribe(deadline); err != nil {
		return err
	}
	f, err := s.receive(deadline)
	if err != nil {
		return err
	}
	if f.kind != "subscribe" {
		return errNotSubscription
	}
	confirmed()
	return s.hearAll(got)
}

// hearAll passes on what comes until the connection ends.
func (s *subscription) hearAll(got func(payload string)) error {
	var confirming sync.WaitGroup
	defer confirming.Wait()
	ended := make(chan struct{})
	defer close(ended)
	confirming.Go(func() { s.confirmUntil(ended) })
	for {
		f, err := s.receive(time.Now().Add(2 * confirmEvery))
		if err != nil {
			return err
		}
		if f.kind == "message" {
			got(f.payload)
		}
	}
}

func (s *subscription) confirmUntil(ended <-chan struct{}) {
	ticker := time.NewTicker(confirmEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ended:
			return
		case <-s.over:
			_ = s.wire.Close()
			return
		case <-ticker.C:
			if s.subscribe(time.Now().Add(confirmEvery)) != nil {
				return // the connection has ended, as the receiver finds too
			}
		}
	}
}

var errNotSubscription = errors.New("what came over the subscription is none of what can")

// subscription is a connection in RESP2's subscribed state. The driver's own
// would connect again by itself, and crashes on frames of another shape.
type subscription struct {
	wire    *wire
	over    <-chan struct{} // closed when the server is found to be no master
	r       *bufio.Reader
	channel string
}

// frame is what can come over a subscription: a message or a confirmation.
type frame struct {
	kind    string
	payload string // of a message
}

// subscribe asks for a confirmation. It may be called while another goroutine
// receives.
func (s *subscription) subscribe(deadline time.Time) error {
	if err := s.wire.SetWriteDeadline(deadline); err != nil {
		return err
	}
	_, err := fmt.Fprintf(s.wire.Conn, "*2\r\n$9\r\nSUBSCRIBE\r\n$%d\r\n%s\r\n", len(s.channel), s.channel)
	return err
}
