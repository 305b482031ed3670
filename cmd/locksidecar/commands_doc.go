package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

//go:generate go test -run=^TestTheCommandsPageIsCurrent$ -count=1 . -update

const commandsHead = `<!-- Generated from cmd/locksidecar/command*.go by make generate. Do not edit. -->

# Commands

` + "`locksidecar`" + ` without a command serves, with the settings in the environment ([config.md](config.md)). Most other commands ask a
sidecar that is running, over its lock API: at ` + "`--url`, else `$LOCKSIDECAR_URL`, else `http://127.0.0.1:5625`" + `. A Unix socket is
` + "`unix:///path`" + `. Where the sidecar demands a token, ` + "`--token-file` or `$LOCKSIDECAR_API_TOKEN_FILE`" + ` names the file that holds it. Redirects are
not followed, and proxies of the environment are not asked.

A duration is a number with its unit, such as ` + "`1500ms`, `30s` or `2h`" + `. With ` + "`-o json`" + ` a command prints what the API has answered, also
if that is a problem of [problems.md](problems.md); the exit code tells it too. What people are to read goes to
standard error if the command fails.

`

// WriteCommandsDoc writes docs/commands.md.
func WriteCommandsDoc(w io.Writer) error {
	var b strings.Builder
	b.WriteString(commandsHead)
	root := newRoot()
	root.InitDefaultHelpCmd()
	for _, group := range root.Groups() {
		for _, c := range root.Commands() {
			if c.GroupID == group.ID {
				fmt.Fprintf(&b, "- [`%s`](#locksidecar-%s) %s\n", c.Name(), c.Name(), c.Short)
			}
		}
	}
	b.WriteString("\n## Exit codes\n\nThe same for every command, and in every `--help`.\n\n| code | meaning |\n|---|---|\n")
	for _, row := range exitCodes {
		fmt.Fprintf(&b, "| %s | %s |\n", row.code, cell(row.meaning))
	}
	b.WriteString("\n75 is what a cron job may take for \"somebody else is at it\". What an operator has to look at is another code: a key that\n" +
		"holds something else than a lock, a full sidecar, a token that is refused (401, 403) are 69.\n")
	for _, group := range root.Groups() {
		for _, c := range root.Commands() {
			if c.GroupID == group.ID {
				describeCommand(&b, c)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func describeCommand(b *strings.Builder, c *cobra.Command) {
	about := c.Long
	if about == "" {
		about = strings.ToUpper(c.Short[:1]) + c.Short[1:] + "."
	}
	fmt.Fprintf(b, "\n## locksidecar %s\n\n%s\n\n```\n%s\n", c.Name(), strings.TrimSpace(about), c.UseLine())
	if c.Example != "" {
		b.WriteString("\n")
		for line := range strings.Lines(strings.TrimRight(c.Example, "\n")) {
			b.WriteString(strings.TrimPrefix(line, "  "))
		}
		b.WriteString("\n")
	}
	b.WriteString("```\n")
	flags := flagsOf(c)
	if !flags.HasAvailableFlags() {
		return
	}
	b.WriteString("\n| flag | default | meaning |\n|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		name := "`--" + f.Name
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		value, usage := pflag.UnquoteUsage(f)
		if value != "" {
			name += " " + value
		}
		standard := ""
		if f.DefValue != "" && f.DefValue != "false" {
			standard = "`" + f.DefValue + "`"
		}
		fmt.Fprintf(b, "| %s` | %s | %s |\n", name, standard, cell(usage))
	})
}
