package redis

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/locksidecar/locksidecar/internal/redistest"
)

// Valkey is a fork of Redis 7.2.4 and has all that Redis had until then; we ask
// for no more than Redis 6.2 has. That the documented permissions are all that is
// used, other tests show.
func TestNothingIsUsedThatRedis62AndItsForksLack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	since := func(command string) string {
		reply := server.Do("COMMAND", "DOCS", command)
		pair, _ := reply.([]any)
		if len(pair) != 2 {
			return ""
		}
		fields, _ := pair[1].([]any)
		for i := 0; i+1 < len(fields); i += 2 {
			if fields[i] == "since" {
				text, _ := fields[i+1].(string)
				return text
			}
		}
		return ""
	}
	permitted := make(map[string]bool)
	for _, name := range []string{"single", "sentinel", "cluster", "replicas", "checks"} {
		for _, rule := range redistest.DocumentedACL(t, name) {
			if command, ok := strings.CutPrefix(rule, "+"); ok {
				permitted[command] = true
			}
		}
	}
	for command := range permitted {
		if version := since(command); version == "" || atLeast(version, 6, 3) {
			t.Errorf("%s: there since %q, want 6.2 at the latest", command, version)
		}
	}
	calls := regexp.MustCompile(`p?call\('([A-Z]+)'`)
	words := regexp.MustCompile(`'([A-Z]{2,})'`)
	known := []string{
		"PX", "KEEPTTL", // since 2.6.12 and 6.0
		"READONLY", "WRONGTYPE", // what errors begin with
	}
	n := 0
	for _, script := range Scripts() {
		commands := make(map[string]bool)
		for _, match := range calls.FindAllStringSubmatch(script, -1) {
			n++
			commands[match[1]] = true
			if !permitted[strings.ToLower(match[1])] {
				t.Errorf("a script runs %s, which no documented permission allows", match[1])
			}
		}
		for _, match := range words.FindAllStringSubmatch(script, -1) {
			if !commands[match[1]] && !slices.Contains(known, match[1]) {
				t.Errorf("a script uses %s, of which it is not known since when there is that", strconv.Quote(match[1]))
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d calls were found in the scripts", n)
	}
}
