package page

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/locksidecar/locksidecar/acceptance/sidecar"
)

// hostile are keys that others might have chosen to harm who looks at them.
var hostile = []string{
	`<img/src=x/onerror=alert(1)>`, `"><svg/onload=alert(1)>`, `</th></tr></table><script>alert(1)</script>`, `<iframe/srcdoc=x>`,
	`javascript:alert(1)`, `&lt;b&gt;&amp;`, `'-alert(1)-'`, "`$(alert(1))`", `<style>*:not(x)`, `<!--`, `]]>`, `__proto__`, `constructor`,
	"pay/\u202egnp.exe", "a\u200bb", "\u2066x\u2069", "\u05e9\u05dc\u05d5\u05dd/\u0645\u0631\u062d\u0628\u0627",
	"z" + strings.Repeat("\u0301\u0327\u0330", 60), strings.Repeat("w", 512), strings.Repeat("\U0001F512", 128), strings.Repeat("a/", 255) + "b",
}

// visible is how the page writes a key.
func visible(key string) string {
	for _, r := range key {
		if strings.ContainsRune("\u202e\u200b\u2066\u2069", r) {
			key = strings.ReplaceAll(key, string(r), fmt.Sprintf("U+%04X", r))
		}
	}
	return key
}

func TestWhatPeopleHaveNamedIsTextAndNoMarkup(t *testing.T) {
	t.Parallel()
	redis := sidecar.StartRedis(t)
	p := sidecar.Start(t, append(redis.Settings(), "HOLDER=<img/src=x/onerror=alert(1)>")...)
	other := sidecar.Start(t, append(redis.Settings(), "HOLDER=<b>bold</b>")...)
	const markup = `<img src=x onerror=alert(1)><script>alert(1)</script>`
	for i, key := range hostile {
		form := url.Values{"owner": {fmt.Sprint(i, markup)}, "note": {markup + "\u202e"}, "ttl": {"1h"}}
		p.Must(201, "POST", "/locks/"+url.PathEscape(key), form.Encode())
	}
	other.Must(201, "POST", "/locks/theirs", url.Values{"note": {markup}}.Encode())
	p.Background("POST", "/locks/theirs", url.Values{"owner": {markup}, "note": {markup}, "wait": {"1h"}}.Encode())
	p.AwaitRow("waiting", "theirs", markup)
	p.Must(201, "POST", "/locks/"+url.PathEscape("<b>lost</b>"), url.Values{"owner": {markup}, "note": {markup}, "ttl": {"1s"}}.Encode())
	redis.Do("DEL", "lock:<b>lost</b>")
	p.AwaitRow("lost", "<b>lost</b>", markup)

	for _, width := range []int64{1280, 390, 360} {
		b := newTab(t)
		b.size(width, 900, "light")
		b.open(p, "/")
		b.until("all are shown", fmt.Sprintf(`document.querySelectorAll("#held tbody tr").length === %d`, len(hostile)))
		shown := get[[][3]string](b, `[...document.querySelectorAll("#held tbody tr")].reverse().map(tr => [".key", "bdi.owner", ".said"].map(c => tr.querySelector(c).textContent))`)
		for i, key := range hostile {
			if want := [3]string{visible(key), fmt.Sprint(i, markup), markup + "U+202E"}; shown[i] != want {
				t.Errorf("at %d pixels:\n got %q\nwant %q", width, shown[i], want)
			}
		}
		b.shows("waiting", "theirs", markup, "<b>bold</b>")
		b.shows("lost", "<b>lost</b>", markup)
		b.says("holder", "<img/src=x/onerror=alert(1)>")
		made := get[string](b, `JSON.stringify([...document.querySelectorAll("main *, .top *")].map(e => e.localName).filter(n =>
			!["a","b","bdi","button","code","dd","div","dl","dt","form","h1","h2","header","i","input","label","li","main","noscript","output","p","path","rect","section","span","svg","table","tbody","td","th","thead","tr","ul"].includes(n)))`)
		if made != "[]" {
			t.Errorf("at %d pixels: elements were made of text: %s", width, made)
		}
		for what, wrong := range map[string]string{
			"an attribute came from a text": `[...document.querySelectorAll("*")].filter(e => [...e.attributes].some(a => /^on|^src|^href/.test(a.name)) && !e.matches(".skip, link, script"))`,
			"a bold text came from a text":  `[...document.querySelectorAll("b")].filter(e => e.id !== "holder" && !e.closest("#warnings"))`,
		} {
			if n := get[int](b, wrong+".length"); n > 0 {
				t.Errorf("at %d pixels: %s, %d times", width, what, n)
			}
		}
		b.staysInside(width)
		overlap := get[[]string](b, `[...document.querySelectorAll("#held tbody tr")].flatMap((tr, i, all) => {
			const key = tr.querySelector(".key"), r = key.getBoundingClientRect(), row = tr.getBoundingClientRect();
			return r.top >= row.top - 1 && r.bottom <= row.bottom + 1 && r.right <= row.right + 1 ? [] : [key.textContent.slice(0, 40)]; })`)
		if len(overlap) > 0 {
			t.Errorf("at %d pixels: keys that leave their row: %q", width, overlap)
		}
		b.shoot(fmt.Sprintf("hostile-%d", width))
		b.quiet()
	}
}

// staysInside fails the test if the page can be scrolled sideways.
func (b *tab) staysInside(width int64) {
	b.t.Helper()
	if wide := get[int64](b, "document.documentElement.scrollWidth"); wide > width {
		b.t.Errorf("the page is %d pixels wide in a window of %d", wide, width)
	}
}

// TestThePolicyBites tries what a flaw in the page would let others do.
func TestThePolicyBites(t *testing.T) {
	t.Parallel()
	p := sidecar.Start(t)
	for name, attempt := range map[string]string{
		"require-trusted-types-for": `try { document.body.innerHTML = "<b>x</b>" } catch (e) { }`,
		"connect-src":               `fetch("http://127.0.0.1:9/").catch(() => {})`,
		"img-src":                   `new Image().src = "/x.png"`,
		"style-src-attr":            `document.body.setAttribute("style", "color: red")`,
		"frame-src":                 `{ const f = document.createElement("iframe"); f.src = "/"; document.body.append(f) }`,
		"form-action":               `{ const f = document.createElement("form"); f.action = "/drain"; f.method = "post"; document.body.append(f); f.submit() }`,
	} {
		b := newTab(t)
		b.open(p, "/")
		b.do(evaluate(attempt))
		b.until(name+" is enforced", fmt.Sprintf(`violations.some(v => v.startsWith(%q))`, name))
	}
	if status, body := p.Do("POST", "/locks/k", ""); status != 201 {
		t.Errorf("the form was sent: %d %s", status, body)
	}
}
