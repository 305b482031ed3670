package main

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// bashWithoutPackage stands in for the package bash-completion where that is
// not loaded; few images have it.
//
//go:embed completion.bash
var bashWithoutPackage string

// completionCommand prints what a shell needs to complete our command lines.
func completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use: "completion {bash | zsh | fish}", Short: "print a script that has a shell complete command lines", GroupID: groupSidecar,
		Long: `Print a script that has a shell complete command lines of locksidecar: commands,
flags, and the keys of locks, for which it asks the sidecar.`,
		Example: `  source <(locksidecar completion bash)                 # now, in bash or zsh
  locksidecar completion bash > /etc/bash_completion.d/locksidecar
  locksidecar completion zsh > "${fpath[1]}/_locksidecar"
  locksidecar completion fish > ~/.config/fish/completions/locksidecar.fish`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := oneArgument("the shell, "+strings.Join(shells, ", "))(cmd, args); err != nil {
				return err
			}
			switch args[0] {
			case "bash", "zsh", "fish":
				return nil
			}
			return usageError("%q is none of the shells %s", args[0], strings.Join(shells, ", "))
		},
		ValidArgsFunction: cobra.FixedCompletions(shells, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			}
			if err := root.GenBashCompletionV2(out, true); err != nil {
				return err
			}
			_, err := fmt.Fprint(out, "\n"+bashWithoutPackage)
			return err
		},
	}
}
