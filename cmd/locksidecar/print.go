package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/locksidecar/locksidecar/internal/client"
	"github.com/locksidecar/locksidecar/internal/httpapi"
)

// printJSON prints an answer of the API as it came.
func printJSON(out io.Writer, raw json.RawMessage) error {
	_, err := out.Write(append(bytes.TrimRight(raw, "\n"), '\n'))
	return err
}

// printEnv prints an answer as lines that a shell can evaluate. They are made
// here: what answers at the URL may be something else than a sidecar.
func printEnv(out io.Writer, raw json.RawMessage) error {
	lines, err := httpapi.ShellLines(raw)
	if err != nil {
		return unavailable("what answers there is no locksidecar: %w", err)
	}
	_, err = out.Write(lines)
	return err
}

// printFailure prints on standard output what a command answers if it fails:
// with json the problem as it came; with env lines that clear the handle and
// whose status is the command's, since eval "$(false)" succeeds.
func printFailure(out io.Writer, format outputFormat, err error) {
	var refused *client.RefusedError
	switch {
	case format == outputEnv && !isTerminal(out):
		fmt.Fprintf(out, "fencing_token=\n(exit %d)\n", exitCode(err))
	case format == outputJSON && errors.As(err, &refused) && refused.Raw != nil:
		_ = printJSON(out, refused.Raw) // the exit code tells it too
	}
}

// outputOf returns how the command prints its answer.
func outputOf(cmd *cobra.Command) outputFormat {
	if f := cmd.Flags().Lookup("output"); f != nil {
		return outputFormat(f.Value.String())
	}
	return outputText
}

// isTerminal tells whether what is read from or written to is a terminal, or
// another device for characters that is not the null device.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// hearBrokenPipes has a write to a pipe that nobody reads any more fail. Go
// would end the process by SIGPIPE otherwise, before it could put anything
// right.
func hearBrokenPipes() { signal.Ignore(syscall.SIGPIPE) }

// rows prints names and values in two columns.
type rows struct{ *tabwriter.Writer }

func newRows(out io.Writer) rows { return rows{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)} }

// add adds a row, unless the value is empty.
func (r rows) add(name, value string) {
	if value != "" {
		fmt.Fprintf(r, "%s\t%s\n", name, value)
	}
}

func printGrant(out io.Writer, g client.Grant) error {
	r := newRows(out)
	r.add("key", visible(g.Key))
	r.add("state", inWords(g.State))
	r.add("owner", visible(g.Owner))
	r.add("note", visible(g.Note))
	r.add("fencing token", strconv.FormatInt(g.FencingToken, 10))
	r.add("held since", g.AcquiredAt.Format(time.RFC3339))
	r.add("held for", readable(millis(g.HeldForMS)))
	ends := fmt.Sprintf("%s of %s", readable(millis(g.ValidForMS)), readable(millis(g.TTLMS)))
	switch {
	case !g.Renew:
		ends += ", ends then unless extended"
	case g.Renewals == 1:
		ends += ", renewed once"
	case g.Renewals > 1:
		ends += fmt.Sprintf(", renewed %d times", g.Renewals)
	}
	r.add("valid for", ends)
	if g.Bind == "connection" {
		r.add("bound to", "the connection that took it")
	}
	if g.MaxHoldMS > 0 {
		r.add("held at most", readable(millis(g.MaxHoldMS)))
	}
	if g.MinHoldMS > 0 {
		r.add("taken at least", readable(millis(g.MinHoldMS)))
	}
	return r.Flush()
}

// printAbsence prints why a lock is not held here.
func printAbsence(out io.Writer, key string, e *client.RefusedError) error {
	r := newRows(out)
	r.add("key", visible(key))
	switch e.Code {
	case "lost":
		r.add("state", "lost: "+visible(e.Cause))
		r.add("fencing token", strconv.FormatInt(e.FencingToken, 10))
		r.add("lost at", e.LostAt.Format(time.RFC3339))
		return r.Flush()
	case "owner_mismatch":
		r.add("state", "held here for another worker")
		return r.Flush()
	}
	o := e.Occupancy
	r.add("state", map[string]string{
		"held": "held elsewhere", "free": "free",
		"min_hold": "kept taken for its minimum hold; nobody holds it",
		"broken":   "broken; nobody holds it, and it is kept taken until its lease would have ended",
	}[o.State])
	if o.State == "" || o.State == "unknown" {
		r.add("state", "not held here; the store does not tell who holds it")
	}
	if h := o.Holder; h != nil {
		r.add("holder", visible(h.Pod))
		if h.Since != nil {
			r.add("since", h.Since.Format(time.RFC3339))
		}
		r.add("note", visible(h.Note))
	}
	if o.State != "free" {
		r.add("free in", freeIn(o))
	}
	if o.QueueLength != nil && *o.QueueLength > 0 {
		r.add("in line", fmt.Sprintf("%d", *o.QueueLength))
	}
	return r.Flush()
}

// freeIn says when the key is free; empty if that is not known.
func freeIn(o client.Occupancy) string {
	switch {
	case o.ExpiresInMS == nil || *o.ExpiresInMS <= 0:
		return ""
	case o.State == "held":
		return readable(millis(*o.ExpiresInMS)) + ", if nobody renews it"
	}
	return readable(millis(*o.ExpiresInMS))
}

// whoHolds says in one line who has the key; empty if that is not known.
func whoHolds(e *client.RefusedError) string {
	var b strings.Builder
	o := e.Occupancy
	if h := o.Holder; h != nil {
		verb := "Held by"
		if o.State != "held" {
			verb = "Last held by"
		}
		fmt.Fprintf(&b, "%s %s", verb, visible(h.Pod))
		if e.HeldHere {
			b.WriteString(", which is asked here,")
		}
		if h.Since != nil {
			fmt.Fprintf(&b, " since %s", h.Since.Format(time.RFC3339))
		}
		if h.Note != "" {
			fmt.Fprintf(&b, " (%s)", visible(h.Note))
		}
	}
	if text := freeIn(o); text != "" {
		separate(&b)
		b.WriteString("free in " + text)
	}
	if o.QueueLength != nil && *o.QueueLength > 0 {
		separate(&b)
		fmt.Fprintf(&b, "in line: %d", *o.QueueLength)
	}
	return b.String()
}

func separate(b *strings.Builder) {
	if b.Len() > 0 {
		b.WriteString("; ")
	}
}

// inWords writes a word of the API for people.
func inWords(state string) string { return strings.ReplaceAll(visible(state), "_", " ") }

// visible returns text that others chose, such that a terminal only shows it.
func visible(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// readable writes a duration with the precision that people need.
func readable(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return strings.Replace(fmt.Sprintf("%d.%ds", d/time.Second, d%time.Second/(time.Second/10)), ".0s", "s", 1)
	case d < time.Hour:
		return strings.Replace(fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second), "m00s", "m", 1)
	case d < 24*time.Hour:
		return strings.Replace(fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute), "h00m", "h", 1)
	}
	return strings.Replace(fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour), "d00h", "d", 1)
}
