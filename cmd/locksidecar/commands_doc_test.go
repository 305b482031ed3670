package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

const commandsPage = "../../docs/commands.md"

func TestTheCommandsPageIsCurrent(t *testing.T) {
	var want bytes.Buffer
	if err := WriteCommandsDoc(&want); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(commandsPage, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(commandsPage)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("docs/commands.md does not describe these commands; run make generate")
	}
}

func TestEveryCommandAndFlagIsDescribed(t *testing.T) {
	root := newRoot()
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Short == "" || c.GroupID == "" {
			t.Errorf("%s has no description, or no group, and so is not in the help", c.Name())
		}
		flagsOf(c).VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no description", c.Name(), f.Name)
			}
		})
		// What an example shows must at least be a command line.
		for line := range strings.Lines(c.Example) {
			for _, flag := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(line, -1) {
				if flag[1] != "" && strings.Contains(line, "locksidecar "+c.Name()) && c.Flags().Lookup(flag[1]) == nil {
					t.Errorf("the example of %s has --%s, which it does not know", c.Name(), flag[1])
				}
			}
		}
	}
}
