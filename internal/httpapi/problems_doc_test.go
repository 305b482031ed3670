package httpapi

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// Every type URL of a problem leads to its row of the page.
func TestThePageOfProblemsHasEveryCodeAndNoOther(t *testing.T) {
	page, err := os.ReadFile("../../docs/problems.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented, raised []string
	for _, match := range regexp.MustCompile(`<a id="([a-z_]+)">`).FindAllSubmatch(page, -1) {
		documented = append(documented, string(match[1]))
	}
	for _, o := range outcomes {
		raised = append(raised, o.code)
	}
	slices.Sort(documented)
	slices.Sort(raised)
	raised = slices.Compact(raised) // a code may have two statuses
	if !slices.Equal(documented, raised) {
		t.Errorf("documented: %q\nraised: %q", documented, raised)
	}
}
