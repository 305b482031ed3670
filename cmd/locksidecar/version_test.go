package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestTheVersionIsTheLinkersElseTheGoCommands(t *testing.T) {
	recorded := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "abc"}
	modified := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	clean := debug.BuildSetting{Key: "vcs.modified", Value: "false"}
	for _, tt := range []struct {
		version, commit string
		recorded        *debug.BuildInfo
		want            string
	}{
		{"v1.2.3", "def", recorded("v9", revision), "locksidecar v1.2.3 (commit def, "},
		{"", "", recorded("v1.2.3"), "locksidecar v1.2.3 (commit unknown, "},
		{"", "", recorded("(devel)", revision, clean), "locksidecar devel (commit abc, "},
		{"", "", recorded("(devel)", modified, revision), "locksidecar devel (commit abc-dirty, "},
		{"", "", new(debug.BuildInfo), "locksidecar devel (commit unknown, "},
	} {
		if got := buildInfo(tt.version, tt.commit, tt.recorded).String(); got != tt.want+runtime.Version()+")" {
			t.Errorf("version %q, commit %q, recorded %v: %s", tt.version, tt.commit, tt.recorded, got)
		}
	}
}
