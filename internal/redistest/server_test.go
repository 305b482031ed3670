package redistest_test

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/redistest"
)

func TestEachServerHasItsOwnPortSocketAndData(t *testing.T) {
	a, b := redistest.Start(t), redistest.Start(t)
	if a.Addr() == b.Addr() || a.Socket() == b.Socket() {
		t.Fatalf("both have the address %s or the socket %s", a.Addr(), a.Socket())
	}
	a.Do("SET", "k", "v", "PX", 60_000)
	if v, ok := a.Get("k"); v != "v" || !ok {
		t.Errorf("Get = %q, %v", v, ok)
	}
	if _, ok := b.Get("k"); ok {
		t.Error("the other server has the key too")
	}
	if ttl := a.PTTL("k"); ttl <= 0 || ttl > time.Minute {
		t.Errorf("PTTL = %v", ttl)
	}
	if ttl := b.PTTL("k"); ttl != redistest.NoKey {
		t.Errorf("PTTL of no key = %v", ttl)
	}
	if keys := a.Keys("*"); len(keys) != 1 || keys[0] != "k" {
		t.Errorf("Keys = %q", keys)
	}
	c, err := net.Dial("tcp", a.Addr())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestDirectivesReachTheServer(t *testing.T) {
	s := redistest.Start(t, "maxmemory 3mb")
	reply := s.Do("CONFIG", "GET", "maxmemory").([]any)
	if reply[1] != "3145728" {
		t.Errorf("maxmemory = %v", reply[1])
	}
}

func TestARestartedServerIsEmptyUnlessItPersists(t *testing.T) {
	forgetful, durable := redistest.Start(t), redistest.Start(t, "appendonly yes", "appendfsync always")
	for _, s := range []*redistest.Server{forgetful, durable} {
		s.Do("SET", "k", "v")
		addr := s.Addr()
		s.Kill()
		if _, err := s.Try("PING"); err == nil {
			t.Fatal("a killed server answers")
		}
		s.Restart()
		if s.Addr() != addr {
			t.Errorf("the address was %s and is %s", addr, s.Addr())
		}
	}
	if _, ok := forgetful.Get("k"); ok {
		t.Error("a server without persistence kept its data")
	}
	if _, ok := durable.Get("k"); !ok {
		t.Error("a server with persistence lost its data")
	}
}

func TestAStoppedServerIsSilentUntilItGoesOn(t *testing.T) {
	s := redistest.Start(t)
	c := s.Dial()
	s.Stop()
	replied := make(chan error, 1)
	go func() {
		_, err := c.Do("PING")
		replied <- err
	}()
	select {
	case err := <-replied:
		t.Fatalf("a stopped server answered: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	s.Cont()
	if err := <-replied; err != nil {
		t.Fatal(err)
	}
}

func TestAServerWithTLSShowsACertificateOfItsAuthority(t *testing.T) {
	s := redistest.Config{TLS: true}.Start(t)
	c, err := tls.Dial("tcp", s.Addr(), &tls.Config{RootCAs: s.CA().Pool()})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if c, err := tls.Dial("tcp", s.Addr(), &tls.Config{RootCAs: redistest.NewCA(t).Pool()}); err == nil {
		c.Close()
		t.Error("another authority's pool accepts the certificate")
	}
}

func TestAPasswordIsAskedForAndPresented(t *testing.T) {
	s := redistest.Config{Password: "secret"}.Start(t)
	s.Do("PING")
	c, err := net.Dial("unix", s.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 7)
	if _, err := c.Read(buf); err != nil || string(buf) != "-NOAUTH" {
		t.Errorf("answer without a password: %q, %v", buf, err)
	}
}

func TestAnErrorReplyIsAnError(t *testing.T) {
	s := redistest.Start(t)
	_, err := s.Try("NOSUCH")
	var refused redistest.Error
	if !errors.As(err, &refused) {
		t.Fatalf("err = %v", err)
	}
}

func TestTheDirectoryIsGoneAfterTheTest(t *testing.T) {
	var dir string
	t.Run("with a server", func(t *testing.T) { dir = redistest.Start(t).Dir() })
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("Stat(%q) = %v", dir, err)
	}
}
