package main

import (
	"strings"
	"testing"
)

func TestNoSettingIsNamedLikeAVariableOfKubernetes(t *testing.T) {
	for _, name := range settingNames() {
		if fromKubernetes(envPrefix + "_" + name) {
			t.Errorf("%s would be ignored when it is misspelt, and set by a Service of that name", name)
		}
	}
}

func TestNoSettingIsANearMissOfAnother(t *testing.T) {
	names := settingNames()
	for i, a := range names {
		for _, b := range names[:i] {
			if editDistance(a, b) <= 1 {
				t.Errorf("%s and %s differ in one character: a slip makes another setting of it", a, b)
			}
		}
	}
}

// TestVariablesOfKubernetesServicesAreIgnored has what a pod gets from
// Services called locksidecar and locksidecar-redis in its namespace.
func TestVariablesOfKubernetesServicesAreIgnored(t *testing.T) {
	_, warnings, mistakes := load(t, with(
		"PORT", "tcp://10.96.0.7:5625",
		"SERVICE_HOST", "10.96.0.7",
		"SERVICE_PORT", "5625",
		"SERVICE_PORT_HTTP", "5625",
		"PORT_5625_TCP", "tcp://10.96.0.7:5625",
		"PORT_5625_TCP_PROTO", "tcp",
		"PORT_5625_TCP_PORT", "5625",
		"PORT_5625_TCP_ADDR", "10.96.0.7",
		"REDIS_PORT", "tcp://10.96.0.8:6379",
		"REDIS_SERVICE_HOST", "10.96.0.8",
		"REDIS_PORT_6379_TCP_ADDR", "10.96.0.8",
		"URL", "http://127.0.0.1:5625",
	), false)
	if len(warnings) > 0 || len(mistakes) > 0 {
		t.Errorf("warnings %q, mistakes %v", warnings, mistakes)
	}
}

func TestUnknownNamesThatResembleNoSettingAreAWarning(t *testing.T) {
	_, warnings, mistakes := load(t, with("LISTENERS", "3", "FAVOURITE_COLOUR", "red"), false)
	if len(mistakes) > 0 {
		t.Errorf("mistakes %v", mistakes)
	}
	if len(warnings) != 2 || !strings.HasPrefix(warnings[0], "LOCKSIDECAR_FAVOURITE_COLOUR ") || !strings.HasPrefix(warnings[1], "LOCKSIDECAR_LISTENERS ") {
		t.Errorf("warnings %q, want the two names in order", warnings)
	}
}

func TestEditDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0},
		{"abc", "abd", 1}, {"abc", "ab", 1}, {"abc", "xabc", 1}, {"abc", "acb", 2},
		{"kitten", "sitting", 3}, {"aaaa", "bbbb", 4},
	} {
		if got := editDistance(tt.a, tt.b); got != tt.want {
			t.Errorf("editDistance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
