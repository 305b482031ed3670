package main

import (
	"bytes"
	"flag"
	"os"
	"reflect"
	"testing"
)

var update = flag.Bool("update", false, "write generated files instead of comparing them")

const settingsPage = "../../docs/config.md"

func TestTheSettingsPageIsCurrent(t *testing.T) {
	var want bytes.Buffer
	if err := WriteSettingsDoc(&want); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(settingsPage, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(settingsPage)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("docs/config.md does not describe these settings; run make generate")
	}
}

func TestEverySettingIsDescribed(t *testing.T) {
	for field := range reflect.TypeFor[Settings]().Fields() {
		if field.Tag.Get("setting") == "" || field.Tag.Get("desc") == "" {
			t.Errorf("%s has no name or no description", field.Name)
		}
	}
	for _, r := range relations {
		for _, name := range r.of {
			if _, ok := settingField(name); !ok {
				t.Errorf("the rule %q is about %s, which is no setting", r.rule, name)
			}
		}
	}
	for name := range devDefaults {
		if _, ok := settingField(name); !ok {
			t.Errorf("locksidecar dev has a default for %s, which is no setting", name)
		}
	}
}

func settingField(name string) (reflect.StructField, bool) {
	for field := range reflect.TypeFor[Settings]().Fields() {
		if field.Tag.Get("setting") == name {
			return field, true
		}
	}
	return reflect.StructField{}, false
}
