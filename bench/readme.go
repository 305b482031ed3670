package main

import (
	"bytes"
	"fmt"
	"os"
)

const (
	readmeBegin = "<!-- bench -->"
	readmeEnd   = "<!-- /bench -->"
)

// updateReadme puts the result between the two marks in a file, each of which
// must be there once.
func (r *result) updateReadme(file string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var table bytes.Buffer
	if err := r.write(&table); err != nil {
		return err
	}
	text, err := between(old, table.Bytes())
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, text, 0o644)
}

// between replaces what stands between the marks.
func between(text, content []byte) ([]byte, error) {
	before, rest, begins := bytes.Cut(text, []byte(readmeBegin))
	_, after, ends := bytes.Cut(rest, []byte(readmeEnd))
	if !begins || !ends || bytes.Count(text, []byte(readmeBegin)) > 1 || bytes.Count(text, []byte(readmeEnd)) > 1 {
		return nil, fmt.Errorf("there is to be one %s, and one %s after it", readmeBegin, readmeEnd)
	}
	return fmt.Appendf(nil, "%s%s\n%s%s%s", before, readmeBegin, content, readmeEnd, after), nil
}
