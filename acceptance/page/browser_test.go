// Package page looks at the status page in a real browser, on the real
// program.
package page

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/locksidecar/locksidecar/acceptance/sidecar"
)

func TestMain(m *testing.M) { sidecar.Main(m, endBrowser) }

var endBrowser = func() {}

// browser starts one browser for all tests.
var browser = sync.OnceValues(func() (context.Context, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, fmt.Errorf("chromium is not installed: run `make test-acceptance`, or `apt-get install chromium`")
	}
	// Only pages of processes that the tests have started are loaded, and in
	// containers there is mostly nothing that a sandbox could be made of.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("lang", "en"), chromedp.WSURLReadTimeout(2*time.Minute))
	allocator, endAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, end := chromedp.NewContext(allocator)
	endBrowser = func() { end(); endAllocator() }
	return ctx, chromedp.Do(ctx)
})

// tab is one page that a test looks at. Whatever the browser has to complain
// of on it fails the test.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu    sync.Mutex
	words []string // of the console
	wrong []string // that must not happen on any page
}

// newTab opens a tab that shares nothing with others. It is closed when the
// test ends.
func newTab(t *testing.T) *tab {
	t.Helper()
	root, err := browser()
	if err != nil {
		t.Fatal(err)
	}
	ctx, closeTab := chromedp.NewContext(root, chromedp.WithNewBrowserContext())
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute) // for all that one test does in the browser
	b := &tab{t: t, ctx: ctx}
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	// Tabs side by side would take the focus from each other.
	if _, err := chromedp.Call(ctx, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}); err != nil {
		t.Fatal(err)
	}
	var listening sync.WaitGroup
	listening.Go(func() {
		for m, err := range chromedp.Console(ctx) {
			if err != nil {
				return
			}
			b.note(&b.words, fmt.Sprintf("%s: %s", m.Type, m.Text))
		}
	})
	err = chromedp.Listen(ctx, func(ev any) {
		if dialog, ok := ev.(*page.EventJavascriptDialogOpening); ok {
			b.note(&b.wrong, "a dialog opened: "+dialog.Message)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	// Violations of the policy are counted from before the page's own script.
	const watch = `window.violations = []; document.addEventListener("securitypolicyviolation", e => violations.push(e.violatedDirective + " " + e.blockedURI));`
	if _, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watch}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		closeTab()
		listening.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, wrong := range b.wrong {
			t.Error(wrong)
		}
	})
	return b
}

func (b *tab) note(list *[]string, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*list = append(*list, text)
}

// console returns what the console has said so far.
func (b *tab) console() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.words...)
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// load loads the page of a sidecar.
func (b *tab) load(p *sidecar.Process, path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(p.URL + path))
}

// open loads the page of a sidecar and returns once it is live.
func (b *tab) open(p *sidecar.Process, path string) {
	b.t.Helper()
	b.load(p, path)
	b.until("the page is live", `document.body.dataset.link === "live"`)
}

// keys presses keys, one after the other.
func (b *tab) keys(keys string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(keys))
}

func (b *tab) click(selector string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

// evaluate is a step that runs statements on the page.
func evaluate(statements string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := chromedp.Evaluate[any]("{"+statements+"; undefined}")(ctx, t)
		return err
	})
}

// quiet fails the test if the browser had anything to complain of.
func (b *tab) quiet() {
	b.t.Helper()
	if words := b.console(); len(words) > 0 {
		b.t.Errorf("the console says %q", words)
	}
	if violations := get[[]string](b, "violations"); len(violations) > 0 {
		b.t.Errorf("the page went against its policy: %q", violations)
	}
}

// shoot takes a picture for those who look at the folder that
// LOCKSIDECAR_GALLERY names.
func (b *tab) shoot(name string) []byte {
	b.t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	if folder := os.Getenv("LOCKSIDECAR_GALLERY"); folder != "" {
		if err := os.WriteFile(filepath.Join(folder, name+".png"), png, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
	return png
}

// size sets the width and height of the window, and whether it is dark.
func (b *tab) size(width, height int64, scheme string) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height))
	b.prefer("prefers-color-scheme", scheme)
}

// prefer sets what the reader prefers: feature, value, feature, value…
func (b *tab) prefer(features ...string) {
	b.t.Helper()
	var media []*emulation.MediaFeature
	for i := 0; i+1 < len(features); i += 2 {
		media = append(media, &emulation.MediaFeature{Name: features[i], Value: features[i+1]})
	}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: media}); err != nil {
		b.t.Fatal(err)
	}
}

// get returns what a JavaScript expression is.
func get[T any](b *tab, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// until returns once an expression is true.
func (b *tab) until(what, expression string) {
	b.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !get[bool](b, "Boolean("+expression+")") {
		if time.Now().After(deadline) {
			b.t.Fatalf("not within a minute: %s (%s)\nthe page says:\n%s\nthe console says: %q", what, expression, b.text(), b.console())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// text returns what can be read on the page.
func (b *tab) text() string { return get[string](b, "document.body.innerText") }

// quote writes a text as JavaScript does.
func quote(text string) string {
	quoted, _ := json.Marshal(text) // a string can always be written
	return string(quoted)
}

// number returns a member of a JSON object.
func number(object, name string) float64 {
	var members map[string]any
	_ = json.Unmarshal([]byte(object), &members)
	n, _ := members[name].(float64)
	return n
}
