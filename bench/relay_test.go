package main

import (
	"io"
	"net"
	"testing"
	"time"
)

func TestARelayPassesAnswersOnLaterIfItIsTold(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		c, err := echo.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.Copy(c, c)
	}()
	r, err := startRelay(echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", r.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	ask := func(text string) time.Duration {
		t.Helper()
		began := time.Now()
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
			t.Fatalf("%q, %v; want %q", got, err, text)
		}
		return time.Since(began)
	}
	ask("now")
	const later = 50 * time.Millisecond
	r.delay.Store(int64(later))
	if took := ask("later"); took < later {
		t.Errorf("an answer came after %v, want it to be held back for %v", took, later)
	}
	r.delay.Store(0)
	r.close()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection outlives the relay")
	}
}
