package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/locksidecar/locksidecar/internal/client"
)

// outputFormat says how a command prints its answer.
type outputFormat string

const (
	outputText outputFormat = "text" // for people
	outputJSON outputFormat = "json" // as the API sent it
	outputEnv  outputFormat = "env"  // name=value lines that a shell can evaluate
)

// flag adds -o, which takes the words given.
func (o *outputFormat) flag(cmd *cobra.Command, words ...outputFormat) {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = string(w)
	}
	cmd.Flags().VarP(&wordFlag{(*string)(o), texts}, "output", "o", "how to print it: "+strings.Join(texts, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(texts, cobra.ShellCompDirectiveNoFileComp))
}

// wordFlag is a flag that takes one of some words.
type wordFlag struct {
	value *string
	words []string
}

func (f *wordFlag) String() string { return *f.value }

func (f *wordFlag) Type() string { return "WORD" }

func (f *wordFlag) Set(text string) error {
	if !slices.Contains(f.words, text) {
		return fmt.Errorf("it is one of %s", strings.Join(f.words, ", "))
	}
	*f.value = text
	return nil
}

// durationFlag is a flag that takes a duration; nil as long as it is not
// given.
type durationFlag struct{ value **time.Duration }

func (f durationFlag) String() string {
	if f.value == nil || *f.value == nil {
		return ""
	}
	return (*f.value).String()
}

func (f durationFlag) Type() string { return "DURATION" }

func (f durationFlag) Set(text string) error {
	d, err := parseDuration(text)
	if err != nil {
		return err
	}
	*f.value = &d
	return nil
}

// parseDuration reads a duration as the API does: a bare number is refused.
func parseDuration(text string) (time.Duration, error) {
	if text == "0" {
		return 0, nil
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, fmt.Errorf("it has no unit; write %ss for seconds or %[1]sms for milliseconds", text)
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("it is no duration, such as 1500ms, 30s or 2h")
	case d < 0:
		return 0, fmt.Errorf("it is below 0")
	}
	return d, nil
}

// requestFlags are the flags that say how a lock is wanted. A command's own
// flag sets Wait.
type requestFlags struct{ client.Request }

func (f *requestFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(durationFlag{&f.TTL}, "ttl", "lease, after which the lock is free if nobody renews it (default: the sidecar's, 30s)")
	flags.Var(nameFlag{&f.Owner}, "owner", "name of the one worker that takes it, at most 128 characters")
	flags.StringVar(&f.Note, "note", "", "`TEXT` that says what is being done, for people who ask who holds it")
	flags.Var(durationFlag{&f.MaxHold}, "max-hold", "never hold it longer than this (default: the sidecar's, no bound)")
	flags.Var(durationFlag{&f.MinHold}, "min-hold", "keep it taken until this long after the grant, even if it is given back earlier")
	noFileCompletion(cmd, "ttl", "owner", "note", "max-hold", "min-hold")
}

// noFileCompletion keeps shells from offering files as values of flags.
func noFileCompletion(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
}
