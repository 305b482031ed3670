package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const chart = "../../locksidecar"

func TestTheReadmeIsUpToDate(t *testing.T) {
	want, err := readme(chart)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(chart, "README.md"))
	if err != nil || string(got) != string(want) {
		t.Errorf("README.md is not what genreadme writes (%v); run make generate", err)
	}
	if !strings.Contains(string(want), "\n| `redis.tls.caKey` | `\"ca.crt\"` | Key of the authorities' certificates") {
		t.Errorf("no row of redis.tls.caKey in\n%s", want)
	}
}

func TestAValueWithoutAComment(t *testing.T) {
	folder := t.TempDir()
	values := "# -- Known.\na: 1\nb:\n  # of no use\n  c: 2\n"
	if err := os.WriteFile(filepath.Join(folder, "values.yaml"), []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readme(folder); err == nil || !strings.Contains(err.Error(), "b.c has no comment") {
		t.Errorf("%v", err)
	}
}
