// Package importtest holds the tests of which room may import what.
package importtest

import (
	"slices"
	"strings"
)

const module = "github.com/locksidecar/locksidecar"

// Each third-party dependency has one room, so that exchanging it is an
// edit in one folder.
const (
	chi        = "github.com/go-chi/chi/v5"
	redis      = "github.com/redis/go-redis/v9"
	prometheus = "github.com/prometheus/client_golang"
	envconfig  = "github.com/kelseyhightower/envconfig"
	cobra      = "github.com/spf13/cobra"
	pflag      = "github.com/spf13/pflag" // cobra's flags
	xsys       = "golang.org/x/sys/unix"
	rapid      = "pgregory.net/rapid"
	goleak     = "go.uber.org/goleak"
	porcupine  = "github.com/anishathalye/porcupine"
)

// room is what the packages at one path may import beside the standard
// library. A path in a list stands for itself alone if it is one of ours, and
// also for what is beneath it if it is a third party's.
type room struct {
	imports []string
	tests   []string // what its tests may import in addition to every test
}

// locker alone knows what a lock is; everybody may know the locker.
const locker = module + "/internal/locker"

// figures counts what tests have done.
const figures = module + "/internal/figures"

// rooms lists every package. A new one is added here with the reason why it
// is not in one that exists.
var rooms = map[string]room{
	"cmd/locksidecar":               {imports: []string{module + "/...", envconfig, prometheus, cobra, pflag}},
	"internal/child":                {imports: []string{locker, xsys}}, // processes; nobody else starts any
	"internal/client":               {imports: []string{locker}},       // the API from the other side; httpapi knows requests, not answers
	"internal/httpapi":              {imports: []string{locker, chi}},
	"internal/locker":               {tests: []string{module + "/internal/renewer"}},
	"internal/locker/memory":        {imports: []string{locker}},
	"internal/locker/redis":         {imports: []string{locker, redis}},
	"internal/locker/quorum":        {imports: []string{locker}, tests: []string{module + "/internal/renewer", locker + "/redis"}}, // on real servers too
	"internal/locker/statedir":      {imports: []string{locker}},
	"internal/locker/lockertest":    {imports: []string{locker, rapid, porcupine, figures}}, // is imported by tests only
	"internal/renewer":              {imports: []string{locker}},
	"internal/metrics":              {imports: []string{locker, prometheus}},
	"internal/redistest":            {imports: []string{figures}}, // is imported by tests only
	"internal/redistest/faultproxy": {imports: []string{figures}}, // is imported by tests only
	"internal/figures":              {},                           // is imported by tests only
	"internal/figures/page":         {imports: []string{figures}},
	"internal/importtest":           {},
	"internal/mutants":              {},
}

// everyTest is what the tests of each room may import.
var everyTest = []string{
	locker, locker + "/memory", locker + "/lockertest",
	module + "/internal/redistest", module + "/internal/redistest/faultproxy",
	rapid, goleak, figures,
}

// testRooms are packages that no product code may import.
var testRooms = []string{
	locker + "/lockertest",
	module + "/internal/redistest", module + "/internal/redistest/faultproxy",
	module + "/internal/importtest", module + "/internal/mutants",
	figures, figures + "/page",
}

// goPackage is what go list tells of a package.
type goPackage struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// violations says which imports of the package its room does not allow.
func violations(p goPackage) []string {
	path := strings.TrimPrefix(p.ImportPath, module+"/")
	r, known := rooms[path]
	if !known {
		return []string{p.ImportPath + " is no room that the import test knows"}
	}
	var wrong []string
	for _, imported := range p.Imports {
		if !allowed(imported, r.imports) || slices.Contains(testRooms, imported) && !slices.Contains(testRooms, p.ImportPath) {
			wrong = append(wrong, path+" imports "+imported)
		}
	}
	inTests := slices.Concat(r.imports, r.tests, everyTest, []string{p.ImportPath})
	for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
		if !allowed(imported, inTests) {
			wrong = append(wrong, "a test of "+path+" imports "+imported)
		}
	}
	slices.Sort(wrong)
	return slices.Compact(wrong)
}

func allowed(imported string, list []string) bool {
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return true // standard library
	}
	ours := strings.HasPrefix(imported, module+"/")
	return slices.ContainsFunc(list, func(pattern string) bool {
		tree, wild := strings.CutSuffix(pattern, "/...")
		return imported == tree || (wild || !ours) && strings.HasPrefix(imported, tree+"/")
	})
}
