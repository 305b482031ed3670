package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

func TestCharts(t *testing.T) {
	var made [2]string
	for i := range made {
		made[i] = t.TempDir()
		if err := (builder{root: "..", version: "v1.2.3-rc.1"}).charts(made[i]); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"locksidecar", "locksidecar-lib"} {
		file := name + "-1.2.3-rc.1.tgz"
		first, err := os.ReadFile(filepath.Join(made[0], file))
		if err != nil {
			t.Fatal(err)
		}
		second, err := os.ReadFile(filepath.Join(made[1], file))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, second) {
			t.Errorf("two packages of %s are not the same", name)
		}
		chart, err := loader.Load(filepath.Join(made[0], file))
		if err != nil {
			t.Fatal(err)
		}
		if chart.Name() != name || chart.Metadata.Version != "1.2.3-rc.1" {
			t.Errorf("%s is %s %s", file, chart.Name(), chart.Metadata.Version)
		}
		// The tag of the image, unless values say otherwise.
		if chart.AppVersion() != "v1.2.3-rc.1" {
			t.Errorf("%s is for version %q of the program", file, chart.AppVersion())
		}
		if name == "locksidecar" && (len(chart.Dependencies()) != 1 || chart.Dependencies()[0].Name() != "locksidecar-lib") {
			t.Errorf("%s does not carry the library chart", file)
		}
	}
}

func TestChartVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3", "v1.2.3-rc.1": "1.2.3-rc.1", "v1.2.3-4-gabc123": "1.2.3-4-gabc123", "abc123": "0.0.0-gabc123", "v1": "0.0.0-gv1",
	} {
		if got := chartVersion(version); got != want {
			t.Errorf("the charts of %s have version %s, want %s", version, got, want)
		}
	}
}
