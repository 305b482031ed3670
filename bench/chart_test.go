package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestChartsOfTheSameResultAreTheSame(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for _, dir := range []string{first, second} {
		if err := someResult().drawCharts(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range charts {
		a, err := os.ReadFile(filepath.Join(first, c.file))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(second, c.file))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs from run to run", c.file)
		}
		for _, want := range []string{c.title, c.yLabel, "workers on one key", nameSidecar, nameRaw, ">1000</text>", "fill:#FFFFFF"} {
			if !strings.Contains(string(a), want) {
				t.Errorf("%s does not show %q", c.file, want)
			}
		}
	}
}

func TestEverySubjectThatWaitsHasALookOfItsOwn(t *testing.T) {
	seen := map[look]string{}
	for name, l := range looks {
		if other, taken := seen[l]; taken {
			t.Errorf("%s looks like %s", name, other)
		}
		seen[l] = name
	}
	for _, name := range []string{nameSidecar, nameBareHandler, nameRaw, nameRedsync, nameRedislock, nameRueidislock} {
		if _, ok := looks[name]; !ok {
			t.Errorf("%s has no look", name)
		}
	}
}

func TestAChartOfNothingIsAnError(t *testing.T) {
	r := someResult()
	r.Points = nil
	if err := r.drawCharts(t.TempDir()); err == nil || !strings.Contains(err.Error(), charts[0].measure) {
		t.Errorf("%v, want an error that says what was not measured", err)
	}
}
