package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logCalls are the methods by which a line gets into the log, with the place
// of its text among their arguments.
var logCalls = map[string]int{"Info": 0, "Warn": 0, "Error": 0, "Log": 2, "lineLocked": 1}

// TestEveryLogLineIsExplained holds docs/log.md to the source: a line that
// somebody on call may meet is explained there, and what is explained there
// can be met.
func TestEveryLogLineIsExplained(t *testing.T) {
	page, err := os.ReadFile("../../docs/log.md")
	if err != nil {
		t.Fatal(err)
	}
	var explained []string
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) > 3 && strings.Count(cells[2], "`") == 2 {
			explained = append(explained, strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(cells[2]), "`"), "`"))
		}
	}
	written := make(map[string]bool)
	for _, dir := range []string{".", "../../internal"} {
		for text, where := range logLines(t, dir) {
			written[text] = true
			if !slices.Contains(explained, text) {
				t.Errorf("docs/log.md does not explain %q (%s)", text, where)
			}
		}
	}
	if len(written) < 30 {
		t.Fatalf("only %d log lines found in the source", len(written))
	}
	for _, text := range explained {
		if !written[text] {
			t.Errorf("docs/log.md explains %q, which nothing writes", text)
		}
	}
}

// logLines returns the text of every log line at level info or above that the
// product's source below the folder writes, and where. Of a text that is put
// together, it is the constant beginning.
func logLines(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{"lockertest", "redistest", "mutants", "importtest", "testdata"}, entry.Name()):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			place, ok := logCalls[method.Sel.Name]
			if !ok || len(call.Args) <= place || isDebug(call.Args[:place]) {
				return true
			}
			if text := beginning(call.Args[place]); text != "" {
				found[text] = files.Position(call.Pos()).String()
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func isDebug(args []ast.Expr) bool {
	return slices.ContainsFunc(args, func(arg ast.Expr) bool {
		level, ok := arg.(*ast.SelectorExpr)
		return ok && level.Sel.Name == "LevelDebug"
	})
}

// beginning returns the constant text that an expression begins with.
func beginning(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return text
		}
	case *ast.BinaryExpr:
		return beginning(e.X)
	}
	return ""
}
