package page

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/locksidecar/locksidecar/acceptance/sidecar"
)

// old is what a page looks like that does not know whether it is still right.
const old = `document.body.hasAttribute("data-old") && /^as of \d+ s ago$/.test(document.getElementById("age").textContent)`

func TestAPageWhoseSidecarIsGoneSaysSoAndComesBack(t *testing.T) {
	t.Parallel()
	door := sidecar.FreeDoor(t)
	p := sidecar.Start(t, "LISTEN="+door, "SHUTDOWN_MODE=release", "SHUTDOWN_GRACE=100ms")
	p.Must(201, "POST", "/locks/before", "")
	b := newTab(t)
	b.open(p, "/")
	b.shows("held", "before")
	green := get[string](b, `getComputedStyle(document.querySelector("#held .bar i")).backgroundColor`)

	p.Signal(syscall.SIGTERM)
	p.WaitExit()
	b.says("link", "The sidecar has shut down")
	b.until("what is old is said to be", old)
	b.says("old", "It may not be so any more.")
	if grey := get[string](b, `getComputedStyle(document.querySelector("#held .bar i")).backgroundColor`); grey == green {
		t.Errorf("what is old is still %s", grey)
	}
	if !get[bool](b, "Boolean("+row("held", "before")+")") {
		t.Error("what was shown last has gone")
	}

	p = sidecar.Start(t, "LISTEN="+door)
	p.Must(201, "POST", "/locks/after", "")
	b.shows("held", "after")
	b.showsNot("held", "before")
	b.until("it is not old any more", `!document.body.hasAttribute("data-old") && document.getElementById("age").textContent === ""`)

	p.Kill() // without a word
	b.says("link", "Reconnecting")
	b.until("what is old is said to be", old)
}

func TestAPageWhoseSidecarHangsSaysSo(t *testing.T) {
	t.Parallel()
	p := sidecar.Start(t)
	p.Must(201, "POST", "/locks/k", "ttl=1h")
	b := newTab(t)
	b.open(p, "/")
	b.shows("held", "k")
	b.do(evaluate(`held.at -= 6000; held.wall -= 6000`)) // so that the test need not wait for all of the eight seconds
	p.Signal(syscall.SIGSTOP)
	b.until("what is old is said to be", old)
	p.Signal(syscall.SIGCONT)
	b.until("it is live again", `document.body.dataset.link === "live" && !document.body.hasAttribute("data-old")`)
}

func TestAPageThatOpensWithoutAFeedAsksNowAndThen(t *testing.T) {
	t.Parallel()
	p := sidecar.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 16 {
		r, _ := http.NewRequestWithContext(ctx, "GET", p.URL+"/", nil)
		r.Header.Set("Accept", "text/event-stream")
		answer, err := new(http.Client).Do(r)
		if err != nil || answer.StatusCode != 200 {
			t.Fatal(err, answer)
		}
		defer answer.Body.Close()
	}
	p.Must(201, "POST", "/locks/k", "")
	b := newTab(t)
	b.open(p, "/")
	b.shows("held", "k")
	b.says("link", "Every few seconds")
	p.Must(201, "POST", "/locks/l", "")
	b.shows("held", "l")
	cancel()
	b.says("link", "Live")
}

func TestThePageAsksForTheToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := sidecar.Start(t, "API_TOKEN_FILE="+file)
	p.Must(201, "POST", "/locks/k", "", "Authorization", "Bearer s3cret")
	b := newTab(t)
	b.load(p, "/")
	b.says("link", "Token needed")
	if text := b.text(); get[bool](b, `document.getElementById("board").checkVisibility()`) || !get[bool](b, `document.activeElement.id === "token"`) {
		t.Errorf("the page shows\n%s", text)
	}
	b.keys("wrong\r")
	b.says("refused", "The sidecar refused this token.")
	b.keys("s3cret\r")
	b.shows("held", "k")
	b.says("link", "Live")
	for what, found := range map[string]string{
		"in the page": "document.documentElement.outerHTML + document.getElementById('token').value", "in its address": "location.href",
		"in the browser": "JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + document.cookie",
	} {
		if get[bool](b, "("+found+").includes('s3cret')") {
			t.Errorf("the token is kept %s", what)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	b.do(evaluate(`link.open()`))
	b.says("link", "Refused: the API token cannot be read")
	if err := os.WriteFile(file, []byte("other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.says("link", "Token needed") // it was changed
	b.keys("other\r")
	b.says("link", "Live")
	b.load(p, "/") // a page that is loaded again has forgotten it
	b.says("link", "Token needed")
	if get[bool](b, `document.body.innerText.includes("shop/web-0")`) {
		t.Error("the page without the token knows whose it is")
	}
}
