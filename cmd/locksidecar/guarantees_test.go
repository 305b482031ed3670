package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestTheGuaranteesNameTestsThatExist(t *testing.T) {
	const root = "../.."
	page, err := os.ReadFile(root + "/docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	defined := make(map[string]bool)
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, match := range function.FindAllSubmatch(source, -1) {
			defined[string(match[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(page), -1)
	if len(names) < 20 {
		t.Fatalf("only %d tests are named", len(names))
	}
	for _, name := range names {
		if !defined[name] {
			t.Errorf("there is no %s", name)
		}
	}
}

func TestTheGuaranteesAreInTheOrderOfTheirNumbersAndEachNamesATest(t *testing.T) {
	page, err := os.ReadFile("../../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		n, err := strconv.Atoi(strings.TrimSpace(cells[min(1, len(cells)-1)]))
		if err != nil {
			continue
		}
		if n <= last {
			t.Errorf("row %d comes after row %d", n, last)
		}
		last = n
		if len(cells) != 6 || !strings.Contains(cells[4], "Test") && !strings.Contains(cells[4], "not here") {
			t.Errorf("row %d names no test, nor says why it cannot be tested here", n)
		}
	}
	if last == 0 {
		t.Error("there are no rows")
	}
}
