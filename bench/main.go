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
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
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
	{"handover", handover},
	{"pod", pod},
	{"scripts", scripts},
	{"blocked", blocked},
	{"bound", bound},
	{"footprint", footprint},
	{"redlock", redlock},
	{"cluster", cluster},
}

var errGoalMissed = errors.New("a goal was missed")

// options are the command line.
type options struct {
	quick, check                     bool
	only, from, json, readme, charts string
}

func parseOptions(args []string) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.BoolVar(&o.quick, "quick", false, "shorter rounds: a look, not a result to publish")
	flags.StringVar(&o.only, "only", "", "comma-separated sections: "+sectionNames())
	flags.BoolVar(&o.check, "check", false, "exit 1 if a goal is missed")
	flags.StringVar(&o.from, "from", "", "measure nothing; take the results from this `file`, written by -json")
	flags.StringVar(&o.json, "json", "", "write the results to this `file`")
	flags.StringVar(&o.readme, "readme", "", "put the table into this `file`, between "+readmeBegin+" and "+readmeEnd)
	flags.StringVar(&o.charts, "charts", "", "draw charts into this `folder`")
	err = flags.Parse(args)
	return o, err
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	var r *result
	if o.from != "" {
		r, err = readResult(o.from)
	} else {
		r, err = o.measure(ctx)
	}
	if r == nil {
		return err
	}
	// What was measured before a failure is printed, but not published.
	if err := errors.Join(err, r.write(stdout)); err != nil {
		return err
	}
	return o.publish(r)
}

// measure returns what it has when sections fail, with their errors.
func (o options) measure(ctx context.Context) (r *result, err error) {
	chosen, err := chooseSections(o.only)
	if err != nil {
		return nil, err
	}
	lab, err := newLab(ctx, o.quick)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lab.close()) }()
	r = lab.newResult()
	var failed []error
	for _, s := range chosen {
		lab.say("%s …", s.name)
		rows, err := s.run(ctx, lab)
		r.Rows, r.Points = append(r.Rows, rows...), lab.points
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return r, errors.Join(failed...)
}

func (o options) publish(r *result) error {
	if o.json != "" {
		if err := r.save(o.json); err != nil {
			return err
		}
	}
	if o.charts != "" {
		if err := r.drawCharts(o.charts); err != nil {
			return err
		}
	}
	if o.readme != "" {
		if err := r.updateReadme(o.readme); err != nil {
			return err
		}
	}
	if o.check && slices.ContainsFunc(r.Rows, func(r row) bool { return r.Missed }) {
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
