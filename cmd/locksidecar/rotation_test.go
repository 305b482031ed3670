package main

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/redistest"
)

// secured is a topology that speaks TLS alone and demands certificates.
type secured struct {
	env       []string
	servers   []*redistest.Server // that have locks
	sentinels []*redistest.Server
}

const (
	firstPassword = "pw-of-the-first-days"
	nextPassword  = "pw-of-the-days-to-come"
)

func startSecured(t *testing.T, mode string, ca *redistest.CA) secured {
	t.Helper()
	config := redistest.Config{TLS: true, CA: ca, Directives: []string{"tls-auth-clients yes"}}
	switch mode {
	case "sentinel":
		s := redistest.SentinelConfig{Config: config, Replicas: 1, Sentinel: []string{"tls-auth-clients yes"}}.StartSentinel(t)
		return secured{[]string{"SENTINEL_MASTER=" + s.Name, "REDIS_ADDRS=" + strings.Join(s.Addrs(), ",")}, s.Servers, s.Sentinels}
	case "cluster":
		c := redistest.ClusterConfig{Config: config, Replicas: -1}.StartCluster(t)
		return secured{[]string{"REDIS_ADDRS=" + strings.Join(c.Addrs(), ",")}, c.Nodes, nil}
	case "redlock":
		var addrs []string
		servers := config.StartMany(t, 3)
		for _, r := range servers {
			addrs = append(addrs, r.Addr())
		}
		return secured{[]string{"REDIS_ADDRS=" + strings.Join(addrs, ","), "REDIS_RESTART_GUARD=0s"}, servers, nil}
	}
	r := config.Start(t)
	return secured{[]string{"REDIS_ADDRS=" + r.Addr()}, []*redistest.Server{r}, nil}
}

// hangUp ends all connections of clients.
func (s secured) hangUp() {
	for _, r := range s.servers {
		r.Do("CLIENT", "KILL", "TYPE", "normal")
	}
}

func TestCertificatesAuthoritiesAndPasswordsAreRotatedWithoutARestart(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"single", "sentinel", "cluster", "redlock"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			before, after := redistest.NewCA(t), redistest.NewCA(t)
			s := startSecured(t, mode, before)
			setPassword := func(password string) {
				for _, r := range s.servers {
					r.SetUser("app", append(redistest.DocumentedACL(t, "cluster"), "+role", "+info", "+config|get", "resetpass", ">"+password)...)
				}
			}
			setPassword(firstPassword)
			cert, key := before.Issue(t, redistest.Certificate{})
			files := map[string]string{
				"CA": writeFile(t, string(before.CertPEM)), "CERT": writeFile(t, string(cert)), "KEY": writeFile(t, string(key)),
				"PASSWORD": writeFile(t, firstPassword),
			}
			p := startSidecar(t, append(s.env,
				"REDIS_MODE="+mode, "REDIS_TLS=true", "REDIS_USERNAME=app", "REDIS_PASSWORD_FILE="+files["PASSWORD"],
				"REDIS_TLS_CA_FILE="+files["CA"], "REDIS_TLS_CERT_FILE="+files["CERT"], "REDIS_TLS_KEY_FILE="+files["KEY"])...)
			p.secrets = append(p.secrets, firstPassword, nextPassword)
			p.awaitReady()
			h := p.POST("k", "ttl=6s").Finally(t, 201, "held")

			cert, key = after.Issue(t, redistest.Certificate{})
			rewrite(t, files["CA"], append(append([]byte(nil), before.CertPEM...), after.CertPEM...))
			for _, r := range append(s.servers, s.sentinels...) {
				r.Rotate(after, redistest.Certificate{})
			}
			rewrite(t, files["CERT"], cert)
			rewrite(t, files["KEY"], key)
			rewrite(t, files["CA"], after.CertPEM) // the one of before is trusted no more
			setPassword(nextPassword)
			rewrite(t, files["PASSWORD"], []byte(nextPassword))
			s.hangUp()
			p.awaitRenewals("k", 2, 20*time.Second)
			eventually(t, 10*time.Second, "another lock is granted", func() bool { return p.POST("other").Status == 201 })
			if again := p.GET("k").Want(t, 200, "held"); again.JSON.Fence != h.JSON.Fence {
				t.Errorf("it is grant %d, was %d", again.JSON.Fence, h.JSON.Fence)
			}

			// An authority that issued nothing here: nobody is trusted.
			rewrite(t, files["CA"], redistest.NewCA(t).CertPEM)
			eventually(t, 10*time.Second, "the servers are not trusted", func() bool {
				s.hangUp() // also connections that were being opened meanwhile
				a := p.POST("third")
				if a.Status == 201 {
					p.giveBack("third", a)
				}
				return a.Is(503, "store_unavailable") || a.Is(503, "no_quorum")
			})
			rewrite(t, files["CA"], after.CertPEM)
			eventually(t, 20*time.Second, "they are again", func() bool { return p.POST("third").Status == 201 })
		})
	}
}

func TestAServerWhoseCertificateIsNoGoodIsLeftAloneUntilItHasAnother(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]redistest.Certificate{
		"expired":         {NotAfter: time.Now().Add(-time.Minute)},
		"of another name": {Names: []string{"another.example"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca := redistest.NewCA(t)
			r := redistest.Config{TLS: true, CA: ca}.Start(t)
			p := startSidecar(t, "REDIS_ADDRS=rediss://"+r.Addr(), "REDIS_TLS_CA_FILE="+writeFile(t, string(ca.CertPEM)))
			p.awaitReady()
			h := p.POST("k", "ttl=9s").Finally(t, 201, "held")
			r.Rotate(ca, bad)
			r.Do("CLIENT", "KILL", "TYPE", "normal")
			p.awaitRefusal("other", "store_unavailable")
			p.awaitState("k", 8*time.Second, 200, "at_risk")
			r.Rotate(ca, redistest.Certificate{})
			if back := p.awaitState("k", 9*time.Second, 200, "held"); back.JSON.Fence != h.JSON.Fence {
				t.Errorf("it is grant %d, was %d", back.JSON.Fence, h.JSON.Fence)
			}
		})
	}
}

// A server that speaks no TLS is not spoken to without.
func TestWithTLSNothingIsEverSentInPlainText(t *testing.T) {
	t.Parallel()
	ca := writeFile(t, string(redistest.NewCA(t).CertPEM))
	for mode, more := range map[string][]string{
		"single": nil, "cluster": nil, "sentinel": {"SENTINEL_MASTER=m", "SENTINEL_PASSWORD=pw-of-sentinels"}, "redlock": nil,
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			var addrs []string
			var mu sync.Mutex
			first := make(map[byte]int) // what connections began with
			for range map[bool]int{true: 3, false: 1}[mode == "redlock"] {
				addrs = append(addrs, listenFor(t, func(b byte) {
					mu.Lock()
					defer mu.Unlock()
					first[b]++
				}))
			}
			p := startSidecar(t, append(more, "REDIS_MODE="+mode, "REDIS_ADDRS="+strings.Join(addrs, ","), "REDIS_TLS=true",
				"REDIS_TLS_CA_FILE="+ca, "REDIS_PASSWORD=pw-of-a-server")...)
			count := func() (n int) {
				mu.Lock()
				defer mu.Unlock()
				for _, times := range first {
					n += times
				}
				return n
			}
			eventually(t, 20*time.Second, "it has tried several times", func() bool {
				if a := p.POST("k"); a.Status != 503 {
					t.Fatalf("the answer is %v", a)
				}
				return count() >= 8
			})
			p.Kill()
			const handshake = 22
			mu.Lock()
			defer mu.Unlock()
			if len(first) != 1 || first[handshake] == 0 {
				t.Errorf("connections began with these bytes: %v, want TLS handshakes alone", fmt.Sprint(first))
			}
		})
	}
}

// listenFor tells the first byte of each connection, answers as a Redis server
// without TLS, and closes it.
func listenFor(t *testing.T, tell func(byte)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(func() { l.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var b [1]byte
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			if _, err := c.Read(b[:]); err == nil {
				tell(b[0])
				_, _ = c.Write([]byte("-ERR Protocol error\r\n"))
			}
			c.Close()
		}
	})
	return l.Addr().String()
}
