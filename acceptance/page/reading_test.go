package page

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/locksidecar/locksidecar/acceptance/sidecar"
)

func TestTheKeyboardReachesEverythingInOrder(t *testing.T) {
	t.Parallel()
	p := sidecar.Start(t)
	p.Must(201, "POST", "/locks/k", "ttl=1h")
	b := newTab(t)
	b.size(1280, 900, "light")
	b.open(p, "/")
	var order []string
	for range 3 {
		b.keys("\t")
		order = append(order, get[string](b, `document.activeElement.id || document.activeElement.textContent`))
		if seen := get[string](b, `getComputedStyle(document.activeElement).outlineStyle + " " + document.activeElement.getBoundingClientRect().top`); !strings.HasPrefix(seen, "solid ") || strings.HasPrefix(seen, "solid -") {
			t.Errorf("the focus on %s cannot be seen: %s", order[len(order)-1], seen)
		}
	}
	if got := strings.Join(order, ", "); got != "Skip to the locks, pause, search" {
		t.Errorf("the order is: %s", got)
	}
	b.do(evaluate(`document.activeElement.blur()`))
	b.slash()
	if got := get[string](b, `document.activeElement.id + document.activeElement.value`); got != "search" {
		t.Errorf("/ leads to %q", got)
	}
	b.slash() // is a character in the box
	b.until("it is typed", `document.getElementById("search").value === "/"`)
	b.do(evaluate(`document.getElementById("pause").focus()`))
	b.keys(" ")
	b.says("link", "Paused")
	b.do(evaluate(`document.querySelector(".skip").focus()`))
	b.keys("\r")
	b.until("the skip link leads to the locks", `document.activeElement.id === "held"`)
	b.quiet()
}

// slash presses the key as a keyboard does: what it types depends on what
// becomes of its press.
func (b *tab) slash() {
	b.t.Helper()
	for _, event := range []input.DispatchKeyEventParams{
		{Type: input.DispatchKeyEventTypeKeyDown, Key: "/", Code: "Slash", Text: "/", WindowsVirtualKeyCode: 191},
		{Type: input.DispatchKeyEventTypeKeyUp, Key: "/", Code: "Slash", WindowsVirtualKeyCode: 191},
	} {
		if _, err := chromedp.Call(b.ctx, input.DispatchKeyEvent, event); err != nil {
			b.t.Fatal(err)
		}
	}
}

// heard is one node that a screen reader tells of.
type heard struct{ role, name string }

// tree returns what a screen reader finds on the page.
func (b *tab) tree() []heard {
	b.t.Helper()
	result, err := chromedp.Call(b.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		b.t.Fatal(err)
	}
	text := func(v *accessibility.Value) string {
		var s string
		if v != nil && json.Unmarshal(v.Value, &s) != nil {
			s = string(v.Value)
		}
		return s
	}
	var list []heard
	for _, n := range result.Nodes {
		if n.Ignored {
			continue
		}
		list = append(list, heard{text(n.Role), text(n.Name)})
	}
	return list
}

func TestAScreenReaderFindsItsWay(t *testing.T) {
	t.Parallel()
	redis := sidecar.StartRedis(t)
	p := sidecar.Start(t, redis.Settings()...)
	p.Must(201, "POST", "/locks/nightly-report", "ttl=1h&owner=report&note=figures")
	p.Must(201, "POST", "/locks/gone", "ttl=1s")
	redis.Do("DEL", "lock:gone")
	p.AwaitRow("lost", "gone", "")
	for _, width := range []int64{1280, 390} { // the cards of a phone are a table too
		b := newTab(t)
		b.size(width, 900, "light")
		b.open(p, "/")
		b.shows("lost", "gone")
		tree := b.tree()
		for _, want := range []heard{
			{"banner", ""}, {"main", ""}, {"contentinfo", ""}, {"search", ""},
			{"heading", "locksidecar"}, {"heading", "Health"}, {"heading", "Held"}, {"heading", "Waiting"}, {"heading", "Lost in the last ten minutes"},
			{"region", "Health"}, {"region", "Held"}, {"table", "Held"}, {"table", "Lost in the last ten minutes"},
			{"columnheader", "Lock"}, {"columnheader", "Time left"}, {"columnheader", "Fencing token"}, {"columnheader", "Cause"},
			{"rowheader", "nightly-report figures"}, {"cell", "report"},
			{"searchbox", "Search keys, owners and notes"}, {"button", "Pause"}, {"link", "Skip to the locks"}, {"status", ""},
		} {
			if !slices.ContainsFunc(tree, func(h heard) bool { return h.role == want.role && (want.name == "" || h.name == want.name) }) {
				t.Errorf("at %d pixels: no %s is called %q", width, want.role, want.name)
			}
		}
		if !slices.Contains(tree, heard{"progressbar", "Time left of nightly-report"}) {
			t.Errorf("at %d pixels: the bar is not told", width)
		}
		// The tree has no texts of values.
		value := get[string](b, `["min", "now", "max", "text"].map(n => document.querySelector("[role=progressbar]").getAttribute("aria-value" + n)).join(" ")`)
		if !regexp.MustCompile(`^0 3\d\d\d 3600 \d\d min of 1 h$`).MatchString(value) {
			t.Errorf("at %d pixels: the value of the bar is %s", width, value)
		}
		for _, h := range tree {
			if slices.Contains([]string{"button", "link", "searchbox", "textbox", "progressbar", "table", "heading"}, h.role) && h.name == "" {
				t.Errorf("at %d pixels: a %s has no name", width, h.role)
			}
		}
		b.quiet()
	}
}

// contrast finds texts whose contrast is less than is asked for.
const contrast = `(() => {
	const parse = c => { const m = c.match(/[\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
	const light = ([r, g, b]) => { const f = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; return .2126 * f(r) + .7152 * f(g) + .0722 * f(b); };
	const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c; } return [255, 255, 255, 1]; };
	const poor = [];
	for (const e of document.querySelectorAll("body, body *")) {
		if (!e.checkVisibility() || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
		if (e.closest(".unseen, .skip, script, style, noscript")) continue;
		const style = getComputedStyle(e), a = light(parse(style.color)), b = light(behind(e));
		const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		window.texts = (window.texts || 0) + 1;
		if (ratio < 4.5) poor.push(e.localName + "." + e.className + " " + ratio.toFixed(2) + ": " + e.textContent.slice(0, 30));
	}
	return poor;
})()`

func TestEveryTextCanBeRead(t *testing.T) {
	t.Parallel()
	p := busyPod(t)
	p.Must(201, "POST", "/locks/"+"\u202ex", "ttl=1h")
	b := newTab(t)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 360} {
			b.size(width, 900, scheme)
			b.open(p, "/")
			b.shows("lost", "cache/rebuild")
			b.do(evaluate(`link.ask("application/json").then(a => a.json()).then(s => { window.told = s; })`))
			b.until("there is a snapshot to alter", "window.told")
			for _, state := range []struct{ name, alter string }{
				{"as it is", ``},
				{"at risk", `for (const r of s.held.rows) { r.state = "at_risk"; s.locks.at_risk = 6 }; s.releasing = {matching: 1, rows: [{...s.lost.rows[0], state: "releasing"}]}`},
				{"all well", `s.locks.lost = 0; s.lost.rows = []; s.warnings = []`},
				{"all bad", `s.store = "the store cannot be used: unavailable"; for (const r of s.held.rows) r.valid_for_ms = 0`},
				{"many", `s.held.matching = 10000`},
			} {
				b.do(evaluate(`link.close(); const s = structuredClone(told); ` + state.alter + `; take(s)`))
				b.readable(scheme, width, state.name)
			}
			b.click("#pause")
			b.readable(scheme, width, "old")
			b.do(evaluate(`link.token = "x"; link.needToken()`))
			b.readable(scheme, width, "refused")
			if n := get[int](b, "window.texts"); n < 200 {
				t.Errorf("only %d texts were looked at", n)
			}
		}
	}
}

// readable fails the test if a text on the page has too little contrast.
func (b *tab) readable(scheme string, width int64, state string) {
	b.t.Helper()
	if poor := get[[]string](b, contrast); len(poor) > 0 {
		b.t.Errorf("%s, %d pixels, %s: too little contrast:\n%s", scheme, width, state, strings.Join(poor, "\n"))
	}
	b.staysInside(width)
	b.shoot(fmt.Sprintf("state-%s-%d-%s", scheme, width, strings.ReplaceAll(state, " ", "-")))
}
