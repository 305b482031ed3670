package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set by the linker (see the Makefile); empty in a plain go build.
var (
	version string
	commit  string
)

// BuildInfo says what this binary was built from.
type BuildInfo struct {
	Version string `json:"version"` // a tag, or devel
	Commit  string `json:"commit"`  // full hash, or unknown; -dirty if files had been changed
	Go      string `json:"go"`      // version of the compiler
}

// ReadBuildInfo returns what the linker was told, and for the rest what the go
// command has recorded: a version in binaries of go install, a commit in those
// that were built inside a checkout.
func ReadBuildInfo() BuildInfo {
	recorded, ok := debug.ReadBuildInfo()
	if !ok {
		recorded = new(debug.BuildInfo)
	}
	return buildInfo(version, commit, recorded)
}

func buildInfo(version, commit string, recorded *debug.BuildInfo) BuildInfo {
	info := BuildInfo{Version: version, Commit: commit, Go: runtime.Version()}
	if info.Version == "" && recorded.Main.Version != "(devel)" {
		info.Version = recorded.Main.Version
	}
	if info.Version == "" {
		info.Version = "devel"
	}
	if info.Commit == "" {
		info.Commit = recordedCommit(recorded)
	}
	return info
}

func recordedCommit(recorded *debug.BuildInfo) string {
	revision, suffix := "unknown", ""
	for _, s := range recorded.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			suffix = "-dirty"
		}
	}
	return revision + suffix
}

func (b BuildInfo) String() string {
	return fmt.Sprintf("locksidecar %s (commit %s, %s)", b.Version, b.Commit, b.Go)
}
