package redistest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// DocumentedACL returns the rules of the line ACL SETUSER that
// docs/operations.md tells operators to use, by the name that is in a comment
// before it. The password is not among them.
func DocumentedACL(t testing.TB, name string) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(moduleRoot(t), "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "<!-- acl: "+name+" -->\n```\n")
	block, _, closed := strings.Cut(rest, "```")
	words := strings.Fields(block)
	if !found || !closed || len(words) < 4 || words[0] != "ACL" || words[1] != "SETUSER" {
		t.Fatalf("docs/operations.md has no line ACL SETUSER for %q", name)
	}
	return slices.DeleteFunc(words[3:], func(rule string) bool { return rule == ">PASSWORD" })
}

// moduleRoot returns the folder of the module, above the one that a test runs in.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "docs", "operations.md")); err == nil {
			return dir
		}
	}
	t.Fatal("no folder above this one has docs/operations.md")
	return ""
}

// SetUser makes a user, or changes one, by ACL rules.
func (s *Server) SetUser(name string, rules ...string) {
	s.t.Helper()
	args := []any{"ACL", "SETUSER", name}
	for _, rule := range rules {
		args = append(args, rule)
	}
	s.Do(args...)
}

// Denied returns what users were refused for want of a permission: commands,
// keys and channels.
func (s *Server) Denied() []string {
	s.t.Helper()
	var all []string
	for _, entry := range replyAs[[]any](s.t, s.Do("ACL", "LOG")) {
		object := pairs(entry)["object"]
		if !slices.Contains(all, object) {
			all = append(all, object)
		}
	}
	return all
}

// Ran tells whether the server has run a command, such as get or config|get.
func (s *Server) Ran(command string) bool {
	return strings.Contains(s.info("commandstats"), "cmdstat_"+command+":calls=")
}
