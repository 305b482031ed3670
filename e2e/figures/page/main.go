// page makes docs/endings.md of what a run has measured.
//
//	go run ./figures/page FIGURES.json PAGE.md
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"github.com/locksidecar/locksidecar/e2e/figures"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("want FIGURES.json and PAGE.md, not %q", args)
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var f figures.Figures
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := f.Write(&out); err != nil {
		return err
	}
	return os.WriteFile(args[1], out.Bytes(), 0o644)
}
