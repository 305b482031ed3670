package importtest

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the folder of the module.
const root = "../.."

func TestEveryRoomImportsOnlyWhatItMay(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := list.Start(); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for decoder := json.NewDecoder(out); ; seen++ {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, v := range violations(p) {
			t.Error(v)
		}
	}
	if err := list.Wait(); err != nil || seen == 0 {
		t.Fatalf("go list: %d packages, error %v", seen, err)
	}
}

func TestTheImportRule(t *testing.T) {
	ours := func(path string) string { return module + "/" + path }
	for _, tt := range []struct {
		p    goPackage
		want string // the violations, or "" if there is none
	}{
		{goPackage{ImportPath: ours("internal/locker"), Imports: []string{"time", "net/http"}}, ""},
		{goPackage{ImportPath: ours("internal/locker"), Imports: []string{"golang.org/x/sys/unix"}}, "internal/locker imports golang.org/x/sys/unix"},
		{goPackage{ImportPath: ours("internal/locker"), Imports: []string{ours("internal/renewer")}}, "internal/locker imports " + ours("internal/renewer")},
		{goPackage{ImportPath: ours("internal/locker"), XTestImports: []string{ours("internal/locker"), ours("internal/locker/memory"), ours("internal/renewer")}}, ""},
		{goPackage{ImportPath: ours("internal/httpapi"), Imports: []string{chi + "/middleware", ours("internal/locker")}}, ""},
		{goPackage{ImportPath: ours("internal/httpapi"), Imports: []string{ours("internal/locker/redis")}}, "internal/httpapi imports " + ours("internal/locker/redis")},
		{goPackage{ImportPath: ours("internal/httpapi"), Imports: []string{ours("internal/locker/memory")}}, "internal/httpapi imports " + ours("internal/locker/memory")},
		{goPackage{ImportPath: ours("internal/httpapi"), TestImports: []string{ours("internal/locker/memory")}}, ""},
		{goPackage{ImportPath: ours("internal/httpapi"), TestImports: []string{ours("internal/metrics")}}, "a test of internal/httpapi imports " + ours("internal/metrics")},
		{goPackage{ImportPath: ours("internal/metrics"), Imports: []string{redis}}, "internal/metrics imports " + redis},
		{goPackage{ImportPath: ours("internal/locker/redis"), Imports: []string{redis, redis + "/internal"}}, ""},
		{goPackage{ImportPath: ours("internal/locker/redis"), Imports: []string{redis + "9"}}, "internal/locker/redis imports " + redis + "9"},
		{goPackage{ImportPath: ours("cmd/locksidecar"), Imports: []string{ours("internal/locker/redis"), envconfig, prometheus + "/prometheus/promhttp"}}, ""},
		{goPackage{ImportPath: ours("cmd/locksidecar"), Imports: []string{redis}}, "cmd/locksidecar imports " + redis},
		{goPackage{ImportPath: ours("cmd/locksidecar"), Imports: []string{ours("internal/redistest")}}, "cmd/locksidecar imports " + ours("internal/redistest")},
		{goPackage{ImportPath: ours("internal/util")}, ours("internal/util") + " is no room that the import test knows"},
	} {
		if got := strings.Join(violations(tt.p), "; "); got != tt.want {
			t.Errorf("%+v:\n got %q\nwant %q", tt.p, got, tt.want)
		}
	}
}

// TestNothingCanServeHeapDumps: importing these packages, even with _, puts
// their handlers on the default mux of net/http, and so on any server that
// uses it.
func TestNothingCanServeHeapDumps(t *testing.T) {
	banned := []string{"net/http/pprof", "expvar"}
	files := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files++
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			if imported, err := strconv.Unquote(spec.Path.Value); err != nil || slices.Contains(banned, imported) {
				t.Errorf("%s imports %s", path, spec.Path.Value)
			}
		}
		return nil
	})
	if err != nil || files == 0 {
		t.Fatalf("%d files read, error %v", files, err)
	}
}
