package httpapi

import (
	"crypto/sha256"
	"encoding/base64"
	"regexp"
	"strings"
	"testing"

	"github.com/locksidecar/locksidecar/internal/locker"
)

func TestThePageMayDoNothingButWhatItIsMadeFor(t *testing.T) {
	response := do(t, newAPI(testConfig(newFakeLocks())), "GET", "/", "", "Accept", "text/html")
	html := bodyOf(t, response)
	hash := func(element string) string {
		found := regexp.MustCompile(`(?s)<`+element+`>(.*?)</`+element+`>`).FindAllStringSubmatch(html, -1)
		if len(found) != 1 {
			t.Fatalf("%d elements are called %s", len(found), element)
		}
		sum := sha256.Sum256([]byte(found[0][1]))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	want := map[string]string{
		"default-src": "'none'", "script-src": hash("script"), "style-src": hash("style"), "img-src": "data:", "connect-src": "'self'",
		"base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'", "require-trusted-types-for": "'script'", "trusted-types": "'none'",
	}
	got := make(map[string]string)
	for directive := range strings.SplitSeq(response.Header.Get("Content-Security-Policy"), "; ") {
		name, value, _ := strings.Cut(directive, " ")
		got[name] = value
	}
	if len(got) != len(want) {
		t.Errorf("the policy is %q", response.Header.Get("Content-Security-Policy"))
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
	for name, value := range map[string]string{
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
	} {
		if response.Header.Get(name) != value {
			t.Errorf("%s is %q, want %q", name, response.Header.Get(name), value)
		}
	}
}

func TestThePageLoadsNothingAndMakesNoMarkupOfText(t *testing.T) {
	html := string(pageHTML)
	for _, ban := range []string{
		`https?://`, `(?i)\bsrc\s*=`, `url\(`, `@import`, `(?i)<(link|img|iframe|object|embed|base)\b`, `(?i)\son[a-z]+\s*=`, `(?i)\sstyle\s*=`,
		`innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|\beval\(|new Function|setHTML`,
		`localStorage|sessionStorage|cookie`,
	} {
		for _, found := range regexp.MustCompile(ban).FindAllStringIndex(html, -1) {
			if line := lineAt(html, found[0]); !strings.HasPrefix(line, `<link rel="icon" href="data:image/svg+xml,`) {
				t.Errorf("%s: %s", ban, line)
			}
		}
	}
}

func lineAt(text string, at int) string {
	start := strings.LastIndexByte(text[:at], '\n') + 1
	line, _, _ := strings.Cut(text[start:], "\n")
	return line
}

// TestThePageAloneIsServedWithoutTheToken: a browser cannot send it before the
// page has asked for it.
func TestThePageAloneIsServedWithoutTheToken(t *testing.T) {
	cfg := testConfig(newFakeLocks())
	cfg.Token = func() (string, error) { return "s3cret", nil }
	cfg.Locks.(*fakeLocks).over = func(locker.Query) locker.Overview { return busy(newFakeLocks()) }
	h := newAPI(cfg)
	for _, test := range []struct {
		method, target, accept string
		status                 int
	}{
		{"GET", "/", "text/html", 200}, {"HEAD", "/", "text/html", 200}, {"GET", "/?search=x", "text/html", 200},
		{"GET", "/", "application/json", 401}, {"GET", "/", "*/*", 401}, {"GET", "/", "text/event-stream", 401},
		{"GET", "/", "text/html;q=0.1,application/json", 401}, {"POST", "/", "text/html", 401}, {"DELETE", "/", "text/html", 401},
		{"GET", "/locks", "text/html", 401}, {"GET", "/locks/k", "text/html", 401}, {"GET", "//", "text/html", 401}, {"GET", "/%2F", "text/html", 401},
		{"POST", "/drain", "text/html", 401}, {"POST", "/quit", "text/html", 401},
	} {
		response := do(t, h, test.method, test.target, "", "Accept", test.accept)
		body := bodyOf(t, response)
		if response.StatusCode != test.status || strings.Contains(body, "shop/web-0") || strings.Contains(body, "v1.2.3") {
			t.Errorf("%s %s as %s: %d %.200s", test.method, test.target, test.accept, response.StatusCode, body)
		}
	}
	if response := do(t, h, "GET", "/", "", "Accept", "text/html", "Host", "evil.example"); response.StatusCode != 403 {
		t.Errorf("the page under another host name: %d", response.StatusCode)
	}
	if response := do(t, h, "GET", "/", "", "Authorization", "Bearer s3cret"); response.StatusCode != 200 {
		t.Errorf("with the token: %d", response.StatusCode)
	}
}
