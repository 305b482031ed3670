package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpCommand says what --help says.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "say what a command does", GroupID: groupSidecar,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, c := range cmd.Root().Commands() {
				if !c.Hidden {
					names = append(names, c.Name()+"\t"+c.Short)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about := cmd.Root()
			if len(args) > 0 {
				found, rest, err := about.Find(args)
				if err != nil || len(rest) > 0 || found == about {
					return noCommandLike(about, args)
				}
				about = found
			}
			about.InitDefaultHelpFlag()
			help(about, nil)
			return nil
		},
	}
}

// help prints what a command does. It is written without cobra's templates:
// text/template calls methods by name, so that the linker could leave out no
// method of anything.
func help(cmd *cobra.Command, _ []string) {
	out := cmd.OutOrStdout()
	about := cmd.Long
	if about == "" {
		about = cmd.Short
	}
	fmt.Fprintf(out, "%s\n\nUsage:\n  %s\n", strings.TrimSpace(about), cmd.UseLine())
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(out, "  %s COMMAND --help\n", cmd.CommandPath())
		helpCommands(out, cmd)
	}
	if cmd.Example != "" {
		fmt.Fprintf(out, "\nExamples:\n%s\n", strings.TrimRight(cmd.Example, "\n"))
	}
	if flags := flagsOf(cmd); flags.HasAvailableFlags() {
		fmt.Fprintf(out, "\nFlags:\n%s", flags.FlagUsagesWrapped(100))
	}
	fmt.Fprint(out, "\nExit codes:\n")
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range exitCodes {
		fmt.Fprintf(table, "  %s\t%s\n", row.code, row.meaning)
	}
	_ = table.Flush() // whoever does not read the help has no use for an error
}

func helpCommands(out io.Writer, cmd *cobra.Command) {
	for _, group := range cmd.Groups() {
		var rows strings.Builder
		table := tabwriter.NewWriter(&rows, 0, 0, 2, ' ', 0)
		for _, c := range cmd.Commands() {
			if c.GroupID == group.ID && (c.IsAvailableCommand() || c.Name() == "help") {
				fmt.Fprintf(table, "  %s\t%s\n", c.Name(), c.Short)
			}
		}
		_ = table.Flush() // a strings.Builder takes everything
		if rows.Len() > 0 {
			fmt.Fprintf(out, "\n%s\n%s", group.Title, rows.String())
		}
	}
}

// flagsOf returns the command's flags without --help, which needs no help.
func flagsOf(cmd *cobra.Command) *pflag.FlagSet {
	flags := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			flags.AddFlag(f)
		}
	})
	return flags
}

// hintForFlag names the flag that is most like the one that the command does
// not know.
func hintForFlag(cmd *cobra.Command, message string) string {
	name, unknown := strings.CutPrefix(message, "unknown flag: --")
	if !unknown {
		return ""
	}
	best, distance := "", nearMiss+1
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if d := editDistance(name, f.Name); d < distance && d < len(f.Name) {
			best, distance = f.Name, d
		}
	})
	if best == "" {
		return ""
	}
	return "; did you mean --" + best + "?"
}
