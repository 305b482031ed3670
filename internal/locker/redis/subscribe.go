package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

const (
	// confirmEvery is how often a subscription is made again, as a sign of life
	// that needs no further permission. A connection that was cut without a
	// word is noticed after twice this.
	confirmEvery = 2 * time.Second

	// How long to wait before connecting again; it grows from the least to
	// the most.
	resubscribeMin = 10 * time.Millisecond
	resubscribeMax = time.Second
)

// Listen implements [locker.Queue]. It has one connection, whatever the process
// waits for, and ends when the Backend is closed.
func (b *Backend) Listen(ctx context.Context, process string, hear func(locker.Hint)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.node.acquire.ctx, cancel)()
	channel := b.keys.channel(process)
	pause := resubscribeMin
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		listening, err := b.listenOnce(ctx, channel, hear)
		if listening {
			pause = resubscribeMin
		}
		if ctx.Err() == nil {
			b.log.Debug("no subscription to wake-ups: trying again", "err", err)
		}
		timer.Reset(pause - rand.N(pause/2))
		pause = min(2*pause, resubscribeMax)
	}
}

// listenOnce listens over one connection until that ends. listening says that
// it came to that.
func (b *Backend) listenOnce(ctx context.Context, channel string, hear func(locker.Hint)) (listening bool, err error) {
	connector := b.node.acquire.connector
	l, err := connector.connect(ctx)
	if err != nil {
		return false, err
	}
	defer l.close()
	s := &subscription{wire: l.wire, r: bufio.NewReader(l.wire), channel: channel}
	deadline := time.Now().Add(connector.timeout)
	if err := s.subscribe(deadline); err != nil {
		return false, err
	}
	confirmed, err := s.receive(deadline)
	if err != nil {
		b.warnIfDenied(err, "subscribe to")
		return false, err
	}
	if confirmed.kind != "subscribe" {
		return false, errNotSubscription
	}
	hear(locker.Hint{Kind: locker.HintListening})
	var publishing sync.WaitGroup
	defer publishing.Wait()
	publishing.Go(func() { b.tryPublish(channel) })
	return true, s.hearAll(hear)
}

// tryPublish finds out, once, whether our user may wake others: scripts do so,
// and say nothing if they are refused. The message means nothing.
func (b *Backend) tryPublish(channel string) {
	if b.published.Swap(true) {
		return
	}
	c := &call{plain: []any{"publish", channel, "-"}}
	err := b.node.acquire.do(context.Background(), c) // within the store's timeout
	if err != nil && !c.refused {
		b.published.Store(false)
	}
	b.warnIfDenied(err, "publish on")
}

// warnIfDenied warns once of a permission that is missing.
func (b *Backend) warnIfDenied(err error, what string) {
	var failure *locker.StoreError
	if !errors.As(err, &failure) || failure.Reason != locker.StoreAuthFailed {
		return
	}
	if _, told := b.denied.LoadOrStore(what, true); !told {
		b.log.Warn("Redis does not let us "+what+" the channels of waiting processes: they get their locks by polling alone", "err", err)
	}
}

// hearAll passes on what comes until the connection ends.
func (s *subscription) hearAll(hear func(locker.Hint)) error {
	var confirming sync.WaitGroup
	defer confirming.Wait()
	ended := make(chan struct{})
	defer close(ended)
	confirming.Go(func() { s.confirmUntil(ended) })
	for {
		frame, err := s.receive(time.Now().Add(2 * confirmEvery))
		if err != nil {
			return err
		}
		if hint, ok := readHint(frame); ok {
			hear(hint)
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
		case <-ticker.C:
			if s.subscribe(time.Now().Add(confirmEvery)) != nil {
				return // the connection has ended, as the receiver finds too
			}
		}
	}
}

// readHint reads a message as line.lua sends it.
func readHint(f frame) (locker.Hint, bool) {
	if f.kind != "message" || len(f.payload) < 2 {
		return locker.Hint{}, false
	}
	key, err := locker.ParseKey(f.payload[1:])
	if err != nil {
		return locker.Hint{}, false
	}
	switch f.payload[0] {
	case 'w':
		return locker.Hint{Kind: locker.HintWake, Key: key}, true
	case 'n':
		return locker.Hint{Kind: locker.HintNear, Key: key}, true
	}
	return locker.Hint{}, false
}

var errNotSubscription = errors.New("what came over the subscription is none of what can")

// subscription is a connection in RESP2's subscribed state. The driver's own
// would connect again by itself, and crashes on frames of another shape.
type subscription struct {
	wire    *wire
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
