package main

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func someResult() *result {
	l := new(lab)
	for i, workers := range crowds {
		for j, name := range []string{nameSidecar, nameRaw} {
			l.point("handover_p50", "ms", name, workers, float64((i+1)*(j+1)))
			l.point("blocked_commands", "1/s", name, workers, float64(100*i*j))
		}
	}
	return &result{
		Date: "2026-01-02", Cores: 2, OS: "linux", Arch: "amd64", Go: "1.26", Redis: "7.0",
		Rows:   []row{{What: "cycles", Subject: nameSidecar, Result: "7/s", VsBare: "0.50", Goal: "≥ 0.8", Missed: true}},
		Points: l.points,
	}
}

func TestAResultIsTheSameWhenReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "result.json")
	want := someResult()
	if err := want.save(file); err != nil {
		t.Fatal(err)
	}
	got, err := readResult(file)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readResult(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("half a file: %v", err)
	}
}

func TestWhatCouldNotBeMeasuredIsNoPoint(t *testing.T) {
	l := new(lab)
	l.point("p", "", nameRaw, 2, math.Inf(1))
	l.point("p", "", nameRaw, 2, math.NaN())
	l.point("p", "", nameRaw, 2, 0)
	if len(l.points) != 1 || l.points[0].Value != 0 {
		t.Errorf("%+v, want the 0 alone", l.points)
	}
}

func TestAResultOfEarlierIsPublishedWithoutMeasuring(t *testing.T) {
	dir := t.TempDir()
	from, readme := filepath.Join(dir, "from.json"), filepath.Join(dir, "README.md")
	if err := someResult().save(from); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(readme, []byte("# It\n\n"+readmeBegin+"\n"+readmeEnd+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"-from", from, "-readme", readme, "-charts", dir}, new(strings.Builder)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 cores (linux/amd64), Go 1.26, Redis 7.0", "2026-01-02", "| cycles", "missed"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	for _, c := range charts {
		if _, err := os.Stat(filepath.Join(dir, c.file)); err != nil {
			t.Error(err)
		}
	}
	var table strings.Builder
	if err := run(t.Context(), []string{"-from", from, "-check"}, &table); !errors.Is(err, errGoalMissed) {
		t.Errorf("with -check: %v, want %v", err, errGoalMissed)
	}
	if !strings.Contains(string(text), table.String()) {
		t.Errorf("the table in the file is not the one that is printed:\n%s", table.String())
	}
}

func TestOnlyWhatStandsBetweenTheMarksIsReplaced(t *testing.T) {
	text := []byte("a\n" + readmeBegin + "\nold\n" + readmeEnd + "\nb\n")
	want := "a\n" + readmeBegin + "\nnew\n" + readmeEnd + "\nb\n"
	for range 2 { // the second time changes nothing
		var err error
		if text, err = between(text, []byte("new\n")); err != nil || string(text) != want {
			t.Fatalf("%q, %v; want %q", text, err, want)
		}
	}
	for _, bad := range []string{"", readmeBegin, readmeEnd + readmeBegin, readmeBegin + readmeBegin + readmeEnd, readmeBegin + readmeEnd + readmeBegin + readmeEnd} {
		if got, err := between([]byte(bad), []byte("new")); err == nil {
			t.Errorf("%q became %q", bad, got)
		}
	}
}
