// Command bench measures locksidecar and its peers side by side, in one run on
// one machine, against a redis-server of its own. It prints one Markdown table
// on standard output and its progress on standard error.
//
// What is compared, and how, is in the README beside this file.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errGoalMissed):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
}

// section is a part of the benchmark that can be run alone.
type section struct {
	name string
	run  func(context.Context, *lab) ([]row, error)
}

var sections = []section{
	{"latency", latency},
	{"throughput", throughput},
	{"held", held},
	{"idle", idle},
}

var errGoalMissed = errors.New("a goal was missed")

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	quick := flags.Bool("quick", false, "shorter rounds: a look, not a result to publish")
	only := flags.String("only", "", "comma-separated sections: "+sectionNames())
	check := flags.Bool("check", false, "exit 1 if a goal is missed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := chooseSections(*only)
	if err != nil {
		return err
	}

	lab, err := newLab(ctx, *quick)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.close()) }()

	var (
		rows   []row
		failed error // what was measured before is printed nevertheless
	)
	for _, s := range chosen {
		lab.say("%s …", s.name)
		more, err := s.run(ctx, lab)
		rows = append(rows, more...)
		if err != nil {
			failed = fmt.Errorf("%s: %w", s.name, err)
			break
		}
	}
	fmt.Printf("%s\n\n", lab.facts())
	if err := errors.Join(failed, writeTable(os.Stdout, rows)); err != nil {
		return err
	}
	if *check && slices.ContainsFunc(rows, func(r row) bool { return r.missed }) {
		return errGoalMissed
	}
	return nil
}

func chooseSections(only string) ([]section, error) {
	if only == "" {
		return sections, nil
	}
	var chosen []section
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(sections, func(s section) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no section %q; there are %s", name, sectionNames())
		}
		chosen = append(chosen, sections[i])
	}
	return chosen, nil
}

func sectionNames() string {
	var names []string
	for _, s := range sections {
		names = append(names, s.name)
	}
	return strings.Join(names, ", ")
}
