package page

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/acceptance/sidecar"
)

// row is a JavaScript expression: the row of a section that has the key, or
// undefined.
func row(section, key string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#%s tbody tr")].find(tr => tr.querySelector(".key").textContent === %s)`, section, quote(key))
}

// textOf is an expression: the text of the row.
func textOf(section, key string) string {
	return fmt.Sprintf(`(%s || {innerText: ""}).innerText`, row(section, key))
}

func (b *tab) shows(section, key string, words ...string) {
	b.t.Helper()
	b.until(fmt.Sprintf("%s is shown among %s", key, section), row(section, key))
	for _, word := range words {
		b.until(fmt.Sprintf("%s is shown with %q", key, word), fmt.Sprintf(`%s.includes(%s)`, textOf(section, key), quote(word)))
	}
}

func (b *tab) showsNot(section, key string) {
	b.t.Helper()
	b.until(fmt.Sprintf("%s is shown among %s no more", key, section), "!"+row(section, key))
}

func (b *tab) says(id, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("#%s says %q", id, text), fmt.Sprintf(`document.getElementById(%q).innerText.includes(%s)`, id, quote(text)))
}

func TestLocksComeAndGoOnThePage(t *testing.T) {
	t.Parallel()
	redis := sidecar.StartRedis(t)
	p := sidecar.Start(t, append(redis.Settings(), "HOLDER=shop/web-0")...)
	other := sidecar.Start(t, append(redis.Settings(), "HOLDER=shop/web-1")...)
	b := newTab(t)
	b.open(p, "/")
	b.says("held", "Nothing is held.")
	b.says("waiting", "Nobody waits here.")
	b.says("lost", "No lock was lost.")
	b.says("verdict", "Nothing is held")
	b.says("holder", "shop/web-0")
	b.says("backend", ", answers")

	p.Must(201, "POST", "/locks/orders/4711", "owner=worker-1&note=capture payment&ttl=6s&max_hold=1h")
	b.shows("held", "orders/4711", "worker-1", "capture payment", " of 6 s", "at most 1 h")
	b.until("it is renewed", `/[1-9]/.test(`+row("held", "orders/4711")+`.querySelectorAll("td")[3].textContent)`)
	b.until("the title counts it", `document.title === "1 lock · shop/web-0 · locksidecar"`)
	p.Must(204, "DELETE", "/locks/orders/4711?owner=worker-1", "")
	b.showsNot("held", "orders/4711")

	// Others wait elsewhere first, then here.
	other.Must(201, "POST", "/locks/migrations", "owner=deploy&note=0042")
	for _, wait := range []struct {
		p     *sidecar.Process
		owner string
	}{{other, "a"}, {p, "b"}, {p, "c"}} {
		wait.p.Background("POST", "/locks/migrations", "wait=5m&owner="+wait.owner)
		wait.p.AwaitRow("waiting", "migrations", wait.owner)
	}
	b.until("two wait", `document.querySelectorAll("#waiting tbody tr").length === 2`)
	rows := get[[]string](b, `[...document.querySelectorAll("#waiting tbody tr")].map(tr => tr.innerText.replaceAll(/\s+/g, " "))`)
	for i, want := range []string{"migrations b 1st here 1 other pod ahead shop/web-1 0042 ", "migrations c 2nd here 1 other pod ahead shop/web-1 0042 "} {
		if !strings.HasPrefix(rows[i], want) || !strings.Contains(rows[i], "4 min ") {
			t.Errorf("row %d of those who wait is %q, want %q", i+1, rows[i], want)
		}
	}

	p.Must(201, "POST", "/locks/cache", "ttl=5s&owner=rebuild")
	b.shows("held", "cache")
	redis.Do("DEL", "lock:cache")
	b.shows("lost", "cache", "gone", "the key vanished from the store", "rebuild", " s ago")
	b.showsNot("held", "cache")
	b.says("verdict", "1 lock was lost in the last ten minutes")
	if news := get[string](b, `document.getElementById("news").textContent`); news != "Lock lost: cache, the key vanished from the store" {
		t.Errorf("readers of the screen are told %q", news)
	}

	p.Must(204, "POST", "/drain", "")
	b.says("verdict", "New locks are refused")
	b.says("waiting", "Nobody waits here.")
	b.quiet()
}

func TestARedisThatIsDownIsSaidAndWhatItEnds(t *testing.T) {
	t.Parallel()
	redis := sidecar.StartRedis(t)
	p := sidecar.Start(t, redis.Settings()...)
	p.Must(201, "POST", "/locks/k", "ttl=6s")
	b := newTab(t)
	b.open(p, "/")
	b.shows("held", "k")
	redis.Kill()
	b.says("verdict", "The store cannot be used")
	b.shows("held", "k", "at risk")
	if is := get[string](b, row("held", "k")+".dataset.is"); is != "warn" {
		t.Errorf("the row is marked %q", is)
	}
	b.shoot("redis-down")
	b.until("the title warns", `document.title.startsWith("(!) ")`)
	b.shows("lost", "k", "expired", "not renewed in time")
	b.quiet()
}

// TestBarsMoveBetweenEvents: the page is told something every two seconds, and
// bars move all the time.
func TestBarsMoveBetweenEvents(t *testing.T) {
	t.Parallel()
	const ttl = 120_000
	p := sidecar.Start(t)
	p.Must(201, "POST", "/locks/k", "ttl=2m&renew=false")
	b := newTab(t)
	b.open(p, "/")
	b.shows("held", "k")
	b.do(evaluate(`
		window.seen = []; window.events = 0;
		const fill = document.querySelector("#held .bar i"), hear = link.heard;
		link.heard = function (...args) { window.events++; return hear.apply(this, args); };
		new MutationObserver(() => window.seen.push([performance.now(), Number(fill.style.transform.slice(7, -1))])).observe(fill, {attributes: true});`))
	b.until("the bar has moved often", "seen.length >= 12")
	seen, events := get[[][2]float64](b, "seen"), get[int](b, "events")
	if events*2 > len(seen) {
		t.Errorf("the bar moved %d times in %d events", len(seen), events)
	}
	var rates []float64
	for i := 1; i < len(seen); i++ {
		if seen[i][1] > seen[i-1][1] {
			t.Errorf("it went up: %v", seen)
		}
		rates = append(rates, (seen[i-1][1]-seen[i][1])/(seen[i][0]-seen[i-1][0])*ttl)
	}
	slices.Sort(rates) // an event that came late makes one step a leap
	if rate := rates[len(rates)/2]; rate < 0.8 || rate > 1.2 {
		t.Errorf("it moves at %.2f of the speed of time: %v", rate, seen)
	}
	before := number(p.Must(200, "GET", "/locks/k", ""), "valid_for_ms")
	shown := get[float64](b, `Number(document.querySelector("#held .bar i").style.transform.slice(7, -1))`) * ttl
	after := number(p.Must(200, "GET", "/locks/k", ""), "valid_for_ms")
	if shown > before+3000 || shown < after-3000 { // it moves in steps, and is written with three digits
		t.Errorf("the bar shows %v ms when the sidecar says %v to %v", shown, before, after)
	}
	b.quiet()
}

func TestALeaseThatIsOverIsNotShownAsHeld(t *testing.T) {
	t.Parallel()
	p := sidecar.Start(t)
	p.Must(201, "POST", "/locks/k", "ttl=1h")
	b := newTab(t)
	b.open(p, "/")
	b.shows("held", "k")
	// No event comes any more, and the page reckons for itself.
	b.do(evaluate(`link.close(); ` + row("held", "k") + `.at -= 3600_000`))
	b.until("its time is up", textOf("held", "k")+`.includes("time is up")`)
	if is := get[string](b, row("held", "k")+`.dataset.is + " " + `+row("held", "k")+`.querySelector("i").style.transform`); is != "over scaleX(0)" {
		t.Errorf("the row is marked %q", is)
	}
}

func TestWhoeverWantsCalmGetsNoMotion(t *testing.T) {
	t.Parallel()
	p := sidecar.Start(t)
	p.Must(201, "POST", "/locks/k", "ttl=1h")
	b := newTab(t)
	b.prefer("prefers-reduced-motion", "reduce")
	b.open(p, "/")
	b.shows("held", "k")
	if moves := get[string](b, `getComputedStyle(document.querySelector("#held .bar i")).transitionDuration`); moves != "0s" {
		t.Errorf("bars take %s to move", moves)
	}
}

func TestASearchShowsWhatMatches(t *testing.T) {
	t.Parallel()
	p := sidecar.Start(t)
	for i := range 30 {
		p.Must(201, "POST", fmt.Sprintf("/locks/orders/%d", i), "owner=w"+fmt.Sprint(i%3))
	}
	b := newTab(t)
	b.open(p, "/?search="+url.QueryEscape("ORDERS/7"))
	b.until("one is shown", `document.querySelectorAll("#held tbody tr").length === 1`)
	if value := get[string](b, `document.getElementById("search").value`); value != "ORDERS/7" {
		t.Errorf("the box says %q", value)
	}
	b.slash()
	b.do(evaluate(`document.getElementById("search").select()`))
	b.keys("w2")
	b.until("ten are shown", `document.querySelectorAll("#held tbody tr").length === 10`)
	b.says("found", "10 matches")
	b.until("the address keeps it", `location.search === "?search=w2"`)
	b.do(evaluate(`document.getElementById("search").select()`))
	b.keys("nothing")
	b.says("held", "Nothing matches.")
	b.says("figures", "30")
	b.quiet()
}

func TestAPauseHoldsThePageStill(t *testing.T) {
	t.Parallel()
	p := sidecar.Start(t)
	p.Must(201, "POST", "/locks/one", "")
	b := newTab(t)
	b.open(p, "/")
	b.shows("held", "one")
	b.click("#pause")
	b.says("link", "Paused")
	p.Must(201, "POST", "/locks/two", "")
	b.until("it says how old it is", `/^as of [1-9]\d* s ago$/.test(document.getElementById("age").textContent)`)
	if get[bool](b, "Boolean("+row("held", "two")+")") {
		t.Error("a page that is paused goes on")
	}
	b.click("#pause")
	b.shows("held", "two")
	b.says("link", "Live")
	b.click("#pause")
	b.click("#search")
	b.keys("tw\r")
	b.showsNot("held", "one")
	b.says("link", "Live")
	b.quiet()
}

// TestRowsStayTheSameElements: what somebody has selected must not go with the
// next event.
func TestRowsStayTheSameElements(t *testing.T) {
	t.Parallel()
	p := sidecar.Start(t)
	p.Must(201, "POST", "/locks/held", "ttl=6s")
	for _, owner := range []string{"", "", "w"} {
		p.Background("POST", "/locks/held", strings.TrimSuffix("wait=1h&owner="+owner, "&owner="))
	}
	b := newTab(t)
	b.open(p, "/")
	b.until("three wait", `document.querySelectorAll("#waiting tbody tr").length === 3`)
	b.do(evaluate(`window.rows = [...document.querySelectorAll("tbody tr")]; getSelection().selectAllChildren(rows[0].querySelector(".key"))`))
	b.until("it was renewed twice", row("held", "held")+`.told.renewals >= 2`)
	if !get[bool](b, `rows.every((tr, i) => tr === document.querySelectorAll("tbody tr")[i]) && String(getSelection()) === "held"`) {
		t.Error("rows were made anew")
	}
	b.quiet()
}

func TestAPageThatNobodySeesAsksForNothing(t *testing.T) {
	t.Parallel()
	p := sidecar.Start(t)
	b := newTab(t)
	b.open(p, "/")
	hide := func(hidden bool) {
		b.do(evaluate(fmt.Sprintf(`Object.defineProperty(document, "hidden", {value: %v, configurable: true}); document.dispatchEvent(new Event("visibilitychange"))`, hidden)))
	}
	hide(true)
	b.until("the feed is closed", "link.abort === null")
	p.Must(201, "POST", "/locks/k", "")
	hide(false)
	b.shows("held", "k")
	b.says("link", "Live")
}

func TestTenThousandLocksLeaveThePageUsable(t *testing.T) {
	t.Parallel()
	p := sidecar.Start(t, "MAX_HELD=10000")
	p.TakeMany(10_000, "orders/%05d", "ttl=30s&owner=worker&note=capture payment")
	b := newTab(t)
	began := time.Now()
	b.open(p, "/")
	b.says("figures", "10,000")
	t.Logf("shown after %v", time.Since(began))
	b.says("held", "200 of 10,000 shown; search to see others")
	if n := get[int](b, `document.querySelectorAll("#held tbody tr").length`); n != 200 {
		t.Errorf("%d rows are shown", n)
	}
	// The longest time in which the page could not have reacted.
	b.do(evaluate(`
		window.worst = 0; let last = performance.now(); const until = last + 3000;
		(function beat() { const now = performance.now(); worst = Math.max(worst, now - last); last = now; if (now < until) setTimeout(beat); else window.done = true; })();`))
	b.until("three seconds are over", "window.done")
	worst := get[float64](b, "worst")
	t.Logf("blocked for %.0f ms at most", worst)
	if worst > 5000 { // how long exactly is up to the machine
		t.Errorf("the page was blocked for %.0f ms", worst)
	}
	b.click("#search")
	b.keys("orders/04242")
	b.until("it is found", `document.querySelectorAll("#held tbody tr").length === 1`)
	b.shows("held", "orders/04242")
	b.quiet()
}
