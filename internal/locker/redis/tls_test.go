package redis

import (
	"crypto/tls"
	"errors"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

func trusting(ca *redistest.CA) func() (*tls.Config, error) {
	return func() (*tls.Config, error) { return &tls.Config{RootCAs: ca.Pool()}, nil }
}

func TestTLSWithAPrivateAuthorityCarriesEverything(t *testing.T) {
	t.Parallel()
	server := redistest.Config{TLS: true}.Start(t)
	b := open(t, server, Config{Addrs: []Address{TCP(server.Addr())}, TLS: trusting(server.CA())})
	cycle(t, b)
}

func TestAServerThatCannotBeTrustedIsUnavailableForCertain(t *testing.T) {
	t.Parallel()
	secure, plain := redistest.Config{TLS: true}.Start(t), redistest.Start(t)
	ca := secure.CA()
	elsewhere := func() (*tls.Config, error) {
		return &tls.Config{RootCAs: ca.Pool(), ServerName: "another.example"}, nil
	}
	for name, config := range map[string]Config{
		"unknown authority":          {Addrs: []Address{TCP(secure.Addr())}, TLS: func() (*tls.Config, error) { return &tls.Config{}, nil }},
		"another private authority":  {Addrs: []Address{TCP(secure.Addr())}, TLS: trusting(redistest.NewCA(t))},
		"another name":               {Addrs: []Address{TCP(secure.Addr())}, TLS: elsewhere},
		"a server without TLS":       {Addrs: []Address{TCP(plain.Addr())}, TLS: trusting(ca)},
		"a config that is not there": {Addrs: []Address{TCP(secure.Addr())}, TLS: func() (*tls.Config, error) { return nil, errors.New("no such file") }},
		"plain text to TLS":          {Addrs: []Address{TCP(secure.Addr())}, StoreTimeout: time.Second},
	} {
		b := open(t, secure, config)
		_, err := b.Acquire(t.Context(), claimFor(testKey))
		wantStoreError(t, name, err, locker.StoreUnavailable, true)
	}
	if keys := append(plain.Keys("*"), secure.Keys("*")...); len(keys) != 0 {
		t.Errorf("keys %q were written all the same", keys)
	}
}

func TestAnAuthorityThatIsReplacedIsFoundByTheNextConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Config{TLS: true}.Start(t)
	trusted := redistest.NewCA(t)
	b := open(t, server, Config{
		Addrs: []Address{TCP(server.Addr())},
		TLS:   func() (*tls.Config, error) { return &tls.Config{RootCAs: trusted.Pool()}, nil },
	})
	_, err := b.Acquire(t.Context(), claimFor(testKey))
	wantStoreError(t, "acquire", err, locker.StoreUnavailable, true)
	trusted = server.CA()
	mustAcquire(t, b, claimFor(testKey))
}
