package httpapi

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The tests of acceptance/openapi hold docs/openapi.yaml to what the program
// answers; these hold it to the two tables that nobody can see from outside.

var (
	yamlPath   = regexp.MustCompile(`^  (/\S*):$`)
	yamlMethod = regexp.MustCompile(`^    (get|head|post|put|patch|delete|options|trace):$`)
	yamlCode   = regexp.MustCompile(`^        - ([a-z_]+)$`)
)

// openAPILines returns the lines of docs/openapi.yaml behind one that starts a
// section and before the next of the same or a lesser indentation.
func openAPILines(t *testing.T, start string) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n"+start+"\n")
	if !found {
		t.Fatalf("docs/openapi.yaml has no line %q", start)
	}
	indentation := len(start) - len(strings.TrimLeft(start, " "))
	lines := strings.Split(section, "\n")
	for i, line := range lines {
		if text := strings.TrimLeft(line, " "); text != "" && len(line)-len(text) <= indentation {
			return lines[:i]
		}
	}
	return lines
}

func TestTheOpenAPIDocumentHasEveryRouteAndNoOther(t *testing.T) {
	documented := make(map[string][]string)
	path := ""
	for _, line := range openAPILines(t, "paths:") {
		if m := yamlPath.FindStringSubmatch(line); m != nil {
			path = m[1]
			documented[path] = nil
		} else if m := yamlMethod.FindStringSubmatch(line); m != nil {
			documented[path] = append(documented[path], strings.ToUpper(m[1]))
		}
	}
	served := map[string][]string{}
	for pattern, methods := range newAPI(Config{}).routes {
		served[strings.Replace(pattern, "*", "{key}", 1)] = slices.Collect(maps.Keys(methods))
	}
	for path := range adminPages(AdminConfig{}) {
		served[path] = []string{"GET"}
	}
	for path, methods := range served {
		slices.Sort(methods)
		slices.Sort(documented[path])
		if !slices.Equal(methods, documented[path]) {
			t.Errorf("%s takes %q and is documented with %q", path, methods, documented[path])
		}
		delete(documented, path)
	}
	for path := range documented {
		t.Errorf("%s is documented and not served", path)
	}
}

func TestTheOpenAPIDocumentHasEveryCodeAndNoOther(t *testing.T) {
	var documented, answered []string
	for _, line := range openAPILines(t, "    Code:") {
		if m := yamlCode.FindStringSubmatch(line); m != nil {
			documented = append(documented, m[1])
		}
	}
	for _, o := range outcomes {
		answered = append(answered, o.code)
	}
	slices.Sort(answered)
	slices.Sort(documented)
	if answered = slices.Compact(answered); !slices.Equal(answered, documented) {
		t.Errorf("answered: %q\ndocumented: %q", answered, documented)
	}
}
