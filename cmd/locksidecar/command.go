package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Groups of commands, as help shows them.
const (
	groupServe   = "serve"
	groupLocks   = "locks"
	groupSidecar = "sidecar"
)

// newRoot makes the tree of commands. Without a command, the program serves.
func newRoot() *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:   "locksidecar",
		Short: "a distributed lock over HTTP on localhost, for the containers of a pod",
		Long: `A distributed lock over HTTP on localhost, for the containers of a pod.

Without a command it serves, with the settings in the environment
(docs/config.md). The commands below ask a sidecar that is running.`,
		Args:          noCommandLike,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case version:
				return printVersion(cmd, outputText)
			case cmd.Flags().ArgsLenAtDash() >= 0:
				return usageError("there is nothing after --")
			}
			return exitWith(serveCommand(false, cmd.ErrOrStderr()))
		},
	}
	root.Flags().BoolVar(&version, "version", false, "say what was built from what")
	root.AddGroup(
		&cobra.Group{ID: groupServe, Title: "Serve:"},
		&cobra.Group{ID: groupLocks, Title: "Locks:"},
		&cobra.Group{ID: groupSidecar, Title: "The sidecar and this program:"},
	)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpFunc(help)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError("%s%s", err, hintForFlag(cmd, err.Error()))
	})
	root.SetHelpCommand(helpCommand())
	root.AddCommand(
		devCommand(),
		execCommand(), lockCommand(), extendCommand(), unlockCommand(), statusCommand(), lsCommand(), breakCommand(),
		waitCommand(), drainCommand(), quitCommand(), installCommand(), completionCommand(), versionCommand(),
	)
	for _, c := range root.Commands() {
		if c.ValidArgsFunction == nil {
			c.ValidArgsFunction = cobra.NoFileCompletions
		}
	}
	return root
}

// noCommandLike is reached if the first argument is no command.
func noCommandLike(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if similar := similarCommands(cmd, args[0]); len(similar) > 0 {
		return usageError("%q is no command; did you mean %s?", args[0], strings.Join(similar, " or "))
	}
	return usageError("%q is no command", args[0])
}

// noCommand says that the first word is no command, which matters more than
// that the program does not know its flags either.
func noCommand(command *cobra.Command, args []string) error {
	first := slices.IndexFunc(args, func(arg string) bool { return !strings.HasPrefix(arg, "-") })
	if command.HasParent() || first < 0 || slices.Contains(args[:first], "--") {
		return nil
	}
	return noCommandLike(command, args[first:])
}

// similarCommands returns the commands whose name is nearly the one typed, the
// nearest first.
func similarCommands(root *cobra.Command, typed string) []string {
	type candidate struct {
		name     string
		distance int
	}
	var near []candidate
	for _, c := range root.Commands() {
		d := editDistance(strings.ToLower(typed), c.Name())
		if len(typed) > 1 && strings.HasPrefix(c.Name(), typed) {
			d = min(d, 1)
		}
		if !c.Hidden && d <= nearMiss && d < len(c.Name()) {
			near = append(near, candidate{c.Name(), d})
		}
	}
	slices.SortStableFunc(near, func(a, b candidate) int { return a.distance - b.distance })
	var names []string
	for _, c := range near {
		if c.distance == near[0].distance {
			names = append(names, c.name)
		}
	}
	return names
}

// noArguments refuses arguments.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError("it takes no arguments, such as %q", args[0])
	}
	return nil
}

// oneArgument demands the one argument that what names.
func oneArgument(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return usageError("%s is missing", what)
		case len(args) > 1:
			return usageError("it takes one %s; what is %q?", what, args[1])
		}
		return nil
	}
}

// devCommand serves from memory.
func devCommand() *cobra.Command {
	return &cobra.Command{
		Use: "dev", Short: "serve from memory: no Redis, nothing is shared with other processes", GroupID: groupServe,
		Long: `Serve locks from the memory of this process: no Redis, and nothing is shared
with other processes. For development and for trying things out. The settings
are those of the environment, except for the REDIS_ ones.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return exitWith(serveCommand(true, cmd.ErrOrStderr()))
		},
	}
}
