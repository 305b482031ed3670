package main

import (
	"crypto/tls"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/locksidecar/locksidecar/internal/redistest"
)

// serveTLS accepts TLS connections with the configuration until the test
// ends, and echoes one byte on each. It returns the address.
func serveTLS(t *testing.T, config *tls.Config) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			var b [1]byte
			if _, err := conn.Read(b[:]); err == nil {
				_, _ = conn.Write(b[:])
			}
			conn.Close()
		}
	}()
	return l.Addr().String()
}

// talk dials with the configuration and exchanges a byte.
func talk(addr string, config *tls.Config) error {
	conn, err := (&tls.Dialer{NetDialer: &net.Dialer{}, Config: config}).Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte{1}); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// serverPair issues a certificate for the names, or for 127.0.0.1.
func serverPair(t *testing.T, ca *redistest.CA, names ...string) []tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(ca.Issue(t, redistest.Certificate{Names: names}))
	if err != nil {
		t.Fatal(err)
	}
	return []tls.Certificate{pair}
}

func rewrite(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestARotatedAuthorityIsTrustedAtTheNextDial(t *testing.T) {
	before, after := redistest.NewCA(t), redistest.NewCA(t)
	addr := serveTLS(t, &tls.Config{Certificates: serverPair(t, after)})
	path := writeFile(t, string(before.CertPEM))
	s := mustLoad(t, with("REDIS_ADDRS", "rediss://"+addr, "REDIS_TLS_CA_FILE", path))
	makeConfig := s.RedisTLSConfig()

	config, err := makeConfig()
	if err != nil {
		t.Fatal(err)
	}
	if err := talk(addr, config); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("with the authority of before: %v", err)
	}
	rewrite(t, path, after.CertPEM)
	if config, err = makeConfig(); err != nil {
		t.Fatal(err)
	}
	if err := talk(addr, config); err != nil {
		t.Errorf("with the authority of now: %v", err)
	}
}

func TestTheClientCertificateIsShown(t *testing.T) {
	ca := redistest.NewCA(t)
	addr := serveTLS(t, &tls.Config{Certificates: serverPair(t, ca), ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool()})
	caFile := writeFile(t, string(ca.CertPEM))
	certPEM, keyPEM := ca.Issue(t, redistest.Certificate{})

	anonymous := mustLoad(t, with("REDIS_TLS", "true", "REDIS_ADDRS", addr, "REDIS_TLS_CA_FILE", caFile))
	config, err := anonymous.RedisTLSConfig()()
	if err != nil {
		t.Fatal(err)
	}
	if err := talk(addr, config); err == nil {
		t.Error("a server that demands a certificate takes a client without")
	}
	known := mustLoad(t, with("REDIS_TLS", "true", "REDIS_ADDRS", addr, "REDIS_TLS_CA_FILE", caFile,
		"REDIS_TLS_CERT_FILE", writeFile(t, string(certPEM)), "REDIS_TLS_KEY_FILE", writeFile(t, string(keyPEM))))
	if config, err = known.RedisTLSConfig()(); err != nil {
		t.Fatal(err)
	}
	if err := talk(addr, config); err != nil {
		t.Errorf("with the certificate: %v", err)
	}
}

func TestTheServerMustHaveTheNameThatIsSet(t *testing.T) {
	ca := redistest.NewCA(t)
	addr := serveTLS(t, &tls.Config{Certificates: serverPair(t, ca, "redis.example")})
	caFile := writeFile(t, string(ca.CertPEM))
	for name, works := range map[string]bool{"redis.example": true, "other.example": false} {
		s := mustLoad(t, with("REDIS_ADDRS", "rediss://"+addr, "REDIS_TLS_CA_FILE", caFile, "REDIS_TLS_SERVER_NAME", name))
		config, err := s.RedisTLSConfig()()
		if err != nil {
			t.Fatal(err)
		}
		if err := talk(addr, config); (err == nil) != works {
			t.Errorf("server name %s: %v", name, err)
		}
	}
}

func TestFilesThatCannotBeReadMakeNoConfiguration(t *testing.T) {
	ca := redistest.NewCA(t)
	certPEM, keyPEM := ca.Issue(t, redistest.Certificate{})
	_, otherKey := ca.Issue(t, redistest.Certificate{})
	for name, damage := range map[string]func(t *testing.T, caFile, certFile, keyFile string){
		"no authority":      func(t *testing.T, caFile, _, _ string) { _ = os.Remove(caFile) },
		"half an authority": func(t *testing.T, caFile, _, _ string) { rewrite(t, caFile, ca.CertPEM[:40]) },
		"no certificate":    func(t *testing.T, _, certFile, _ string) { _ = os.Remove(certFile) },
		"no key":            func(t *testing.T, _, _, keyFile string) { _ = os.Remove(keyFile) },
		"another's key":     func(t *testing.T, _, _, keyFile string) { rewrite(t, keyFile, otherKey) },
	} {
		t.Run(name, func(t *testing.T) {
			caFile, certFile, keyFile := writeFile(t, string(ca.CertPEM)), writeFile(t, string(certPEM)), writeFile(t, string(keyPEM))
			s := mustLoad(t, with("REDIS_TLS", "true", "REDIS_TLS_CA_FILE", caFile, "REDIS_TLS_CERT_FILE", certFile, "REDIS_TLS_KEY_FILE", keyFile))
			makeConfig := s.RedisTLSConfig()
			if config, err := makeConfig(); config == nil || err != nil {
				t.Fatalf("before: %v", err)
			}
			damage(t, caFile, certFile, keyFile)
			if config, err := makeConfig(); config != nil || err == nil {
				t.Errorf("configuration %v, error %v", config, err)
			}
		})
	}
}
