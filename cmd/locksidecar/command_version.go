package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
)

// versionCommand says what was built from what.
func versionCommand() *cobra.Command {
	output := outputText
	cmd := &cobra.Command{
		Use: "version", Short: "say what was built from what", GroupID: groupSidecar,
		Long: "Say which version of locksidecar this is, from which commit and by which compiler it was built.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return printVersion(cmd, output) },
	}
	output.flag(cmd, outputText, outputJSON)
	return cmd
}

func printVersion(cmd *cobra.Command, output outputFormat) error {
	info := ReadBuildInfo()
	if output == outputJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(info)
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), info)
	return err
}
