package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/locksidecar/locksidecar/internal/client"
)

// runHere runs a command in this process.
func runHere(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

func TestWhatIsWrongWithTheCommandLineIsToldWithAHint(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"verzion":             "did you mean version?",
		"vers":                "did you mean version?",
		"serve":               `"serve" is no command`,
		"help verzion":        "did you mean version?",
		"verzion --output x":  "did you mean version?",
		"--verson":            "did you mean --version?",
		"version --outptu=x":  "did you mean --output?",
		"version --zzzzzz":    "unknown flag: --zzzzzz",
		"version -v":          "unknown shorthand flag: 'v'",
		"version -o yaml":     "it is one of text, json",
		"version now":         `it takes no arguments, such as "now"`,
		"dev now":             `it takes no arguments`,
		"-v":                  "unknown shorthand flag",
		"--":                  "nothing after --",
		"version -o":          "flag needs an argument",
		"completion-of-dev x": "is no command",
	} {
		code, stdout, stderr := runHere(strings.Fields(line)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, want) || !strings.Contains(stderr, "--help\n") {
			t.Errorf("%s: exit code %d, output %q, errors %q; want %d and %q", line, code, stdout, stderr, exitUsage, want)
		}
	}
}

func TestEveryCommandsHelpTellsTheExitCodes(t *testing.T) {
	t.Parallel()
	lines := []string{"", "help"}
	for _, c := range newRoot().Commands() {
		if !c.Hidden {
			lines = append(lines, c.Name())
		}
	}
	for _, line := range lines {
		code, stdout, stderr := runHere(append(strings.Fields(line), "--help")...)
		if code != 0 || stderr != "" {
			t.Errorf("%s --help: exit code %d, errors %q", line, code, stderr)
		}
		for _, row := range exitCodes {
			if !strings.Contains(stdout, "  "+row.code+" ") || !strings.Contains(stdout, row.meaning) {
				t.Errorf("%s --help does not tell exit code %s", line, row.code)
			}
		}
		if line != "" {
			if code, again, _ := runHere("help", line); code != 0 || again != stdout {
				t.Errorf("help %s is not what %s --help says:\n%s", line, line, again)
			}
		}
	}
}

// A code that has been forgotten would end as "unavailable", and a cron job
// would cry for help because somebody else holds its lock.
func TestEveryProblemHasAnExitCode(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/problems.md")
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[int][]string)
	for _, match := range regexp.MustCompile(`<a id="([a-z_]+)">`).FindAllSubmatch(page, -1) {
		code := exitCode(fmt.Errorf("wrapped: %w", &client.RefusedError{Code: string(match[1])}))
		got[code] = append(got[code], string(match[1]))
	}
	want := map[int]string{
		exitNotAcquired: "held queued wait_timeout owner_busy owner_mismatch parameter_mismatch not_held",
		exitLost:        "lost",
		exitUsage: "invalid_key invalid_ttl invalid_wait invalid_owner invalid_bind invalid_renew invalid_max_hold invalid_min_hold " +
			"invalid_note invalid_fencing_token invalid_force invalid_all invalid_parameter invalid_body body_too_large unsupported_media_type",
	}
	for code, problems := range want {
		if have := strings.Join(got[code], " "); !sameWords(have, problems) {
			t.Errorf("exit code %d: %s; want %s", code, have, problems)
		}
		delete(got, code)
	}
	delete(got, exitUnavailable)
	if len(got) > 0 {
		t.Errorf("other exit codes: %v", got)
	}
}

func sameWords(a, b string) bool {
	words := make(map[string]int)
	for _, w := range strings.Fields(a) {
		words[w]++
	}
	for _, w := range strings.Fields(b) {
		words[w]--
	}
	for _, n := range words {
		if n != 0 {
			return false
		}
	}
	return true
}

func TestVersionAsJSON(t *testing.T) {
	t.Parallel()
	code, stdout, _ := runHere("version", "-o", "json")
	if code != 0 || !regexp.MustCompile(`^\{"version":"[^"]+","commit":"[^"]+","go":"go[^"]+"\}\n$`).MatchString(stdout) {
		t.Errorf("exit code %d, output %q", code, stdout)
	}
}
