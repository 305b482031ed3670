package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/locksidecar/locksidecar/internal/figures"
)

func TestThePageIsWrittenBetweenItsMarksOnceEverythingWasCounted(t *testing.T) {
	dir := t.TempDir()
	counts, page := filepath.Join(dir, "counts"), filepath.Join(dir, "page.md")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func() string {
		t.Helper()
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	write(counts, "")
	write(page, "before\nafter\n")
	if err := run(figures.Run{}, []string{counts, page}); err == nil || !strings.Contains(err.Error(), "no lines") {
		t.Errorf("a page without marks: %v", err)
	}
	const old = "before\n" + begin + "of an earlier run\n" + end + "after\n"
	write(page, old)
	lines := ""
	for missing := regexp.MustCompile(`nothing was counted of (".*")$`); ; {
		err := run(figures.Run{Commit: "abc"}, []string{counts, page})
		if err == nil {
			break
		}
		found := missing.FindStringSubmatch(err.Error())
		if found == nil || read() != old {
			t.Fatalf("error %v, and the page is\n%s", err, read())
		}
		lines += fmt.Sprintf("{\"row\":%s,\"column\":\"single\",\"n\":1}\n", found[1])
		write(counts, lines)
	}
	got := read()
	if !strings.HasPrefix(got, "before\n"+begin) || !strings.HasSuffix(got, end+"after\n") || strings.Contains(got, "of an earlier run") || !strings.Contains(got, "commit abc") {
		t.Errorf("the page is\n%s", got)
	}
}
