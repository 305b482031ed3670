package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// evaluate runs the answer in a shell, in an empty folder, and returns what
// the expression prints then. Nothing but the assignments may have happened.
func evaluate(t *testing.T, answer, expression string) string {
	t.Helper()
	dir := t.TempDir()
	script := filepath.Join(t.TempDir(), "answer")
	if err := os.WriteFile(script, []byte(answer), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("sh", "-euc", `eval "$(cat "$1")"; `+expression, "sh", script)
	command.Dir = dir
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("sh: %v: %s\n%s", err, out, answer)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Fatalf("evaluating the answer executed something:\n%s", answer)
	}
	return string(out)
}

var hostileTexts = []string{
	"plain", "", "it's", `'; touch pwned; '`, "$(touch pwned)", "`touch pwned`", `"; touch pwned; "`, `\'; touch pwned; #`,
	"a&&touch pwned", "a|touch pwned", "$HOME ${IFS}", `\`, `'\''`, "*", "~", "!x", "€ and <b>&amp;</b>", "=", "-n",
	"x>pwned", "\u2028touch pwned",
}

func TestPlainAnswersAreSafeToEvaluate(t *testing.T) {
	for _, text := range hostileTexts {
		locks := newFakeLocks()
		locks.acquire = func(_ context.Context, r locker.Request) (locker.Status, bool, error) {
			r.Note = text
			return locks.statusOf(1, r), false, nil
		}
		response := do(t, newAPI(testConfig(locks)), "POST", "/locks/it's-$(id)-`x`;", "", "Accept", "text/plain")
		if got := response.Header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
			t.Fatalf("Content-Type %s", got)
		}
		got := evaluate(t, bodyOf(t, response), `printf '%s|%s|%s|%s' "$note" "$key" "$fencing_token" "$renew"`)
		if want := text + "|it's-$(id)-`x`;|1001|true"; got != want {
			t.Errorf("the shell read %q, want %q", got, want)
		}
	}
}

func TestPlainErrorsAreSafeToEvaluate(t *testing.T) {
	for _, text := range hostileTexts {
		locks := newFakeLocks()
		locks.acquire = func(context.Context, locker.Request) (locker.Status, bool, error) {
			return locker.Status{}, false, &locker.HeldError{Occupancy: locker.Occupancy{
				State: locker.OccupancyHeld, ExpiresIn: 2 * time.Second, Holder: &locker.Holder{Pod: text, Note: text}}}
		}
		response := do(t, newAPI(testConfig(locks)), "POST", "/locks/k", "", "Accept", "text/plain")
		if response.StatusCode != http.StatusConflict {
			t.Fatal(response.StatusCode)
		}
		got := evaluate(t, bodyOf(t, response), `printf '%s|%s|%s|%s|%s' "$code" "$holder_pod" "$holder_note" "$holder_since" "$expires_in_ms"`)
		if want := "held|" + text + "|" + text + "||2000"; got != want {
			t.Errorf("the shell read %q, want %q", got, want)
		}
	}
	response := do(t, newAPI(testConfig(newFakeLocks())), "POST", "/locks/k?$(touch%20pwned)'=1", "", "Accept", "text/plain")
	if got := evaluate(t, bodyOf(t, response), `printf '%s' "$code"`); got != "invalid_parameter" {
		t.Errorf("code %q", got)
	}
}

func TestLinesKeepLineEndsInsideQuotes(t *testing.T) {
	lines, err := ShellLines([]byte(`{"note":"a\ntouch pwned\n'b","more":{"x":null,"y":-1.5},"last":false}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := evaluate(t, string(lines), `printf '%s|%s|%s|%s' "$note" "$more_x" "$more_y" "$last"`); got != "a\ntouch pwned\n'b||-1.5|false" {
		t.Errorf("the shell read %q", got)
	}
}

func TestNoVariableIsSetWhoseNameIsNoneOfOurs(t *testing.T) {
	for _, name := range []string{"", "a b", "a;touch pwned", "1a", "PATH", "a\n", "é", "$(touch pwned)"} {
		for _, object := range []string{`{` + quoteJSON(name) + `:1}`, `{"a":{` + quoteJSON(name) + `:1}}`} {
			if lines, err := ShellLines([]byte(object)); err == nil {
				t.Errorf("%s became %q", object, lines)
			}
		}
	}
}

func TestAcceptIsWeighed(t *testing.T) {
	for accept, plain := range map[string]bool{
		"": false, "*/*": false, "application/json": false, "application/json, text/plain, */*": false,
		"text/html,application/xhtml+xml,*/*;q=0.8": false, "text/plain;q=0": false, "text/plain;q=2": false, "nonsense": false,
		"text/plain": true, "text/*": true, "TEXT/PLAIN": true, "text/plain, */*;q=0.1": true,
		"text/plain;q=0.5, application/json;q=0.4": true, "text/*;q=0.9, text/plain;q=0.1, application/json;q=0.5": false,
		"text/plain; charset=utf-8": true, "*/*, application/json;q=0.1": true,
	} {
		r := &http.Request{Header: http.Header{}}
		if accept != "" {
			r.Header.Set("Accept", accept)
		}
		if got := prefers(r, typePlain, typeJSON); got != plain {
			t.Errorf("%q: plain %v, want %v", accept, got, plain)
		}
	}
}

func FuzzShellLines(f *testing.F) {
	for _, text := range hostileTexts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		lines, err := ShellLines([]byte(`{"a":` + quoteJSON(text) + `}`))
		if err != nil {
			t.Skip()
		}
		if !quotedLine.Match(lines) {
			t.Errorf("not one quoted value: %q", lines)
		}
	})
}

// quotedLine is one assignment of a value of which a shell executes nothing.
var quotedLine = regexp.MustCompile(`^a='[^']*'(\\''[^']*')*\n$`)

func quoteJSON(text string) string {
	encoded, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(encoded)
}
