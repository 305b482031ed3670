package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/locksidecar/locksidecar/internal/client"
)

// extendCommand extends a lock.
func extendCommand() *cobra.Command {
	var (
		at      connection
		handle  handleFlags
		changes client.Changes
		note    string
		output  = outputText
	)
	cmd := &cobra.Command{
		Use: "extend KEY", Short: "begin the lease of a lock anew, or change its bounds", GroupID: groupLocks,
		Long: `Begin the lease of a lock anew that this sidecar holds, and change what the flags
say. It is the heartbeat of a lock that was taken with --renew=false. It never
takes a lock.`,
		Example: `  locksidecar extend nightly-report --fencing-token "$fencing_token" --ttl 1m`,
		Args:    oneArgument("KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("note") {
				changes.Note = &note
			}
			return at.ask(cmd, 0, func(ctx context.Context, sidecar *client.Client) error {
				g, err := sidecar.Extend(ctx, args[0], handle.Handle, changes)
				if err != nil {
					return err
				}
				return printHolding(cmd, g, output)
			})
		},
		ValidArgsFunction: at.completeKeys("held", "at_risk"),
	}
	handle.add(cmd)
	cmd.Flags().Var(durationFlag{&changes.TTL}, "ttl", "lease from now on (default: as before)")
	cmd.Flags().Var(durationFlag{&changes.MaxHold}, "max-hold", "never hold it longer than this, counted from the grant; 0 sets no bound")
	cmd.Flags().StringVar(&note, "note", "", "`TEXT` that says what is being done now, for people")
	noFileCompletion(cmd, "ttl", "max-hold", "note")
	output.flag(cmd, outputText, outputJSON, outputEnv)
	at.add(cmd)
	return cmd
}

// printHolding prints a lock that is held.
func printHolding(cmd *cobra.Command, g client.Grant, output outputFormat) error {
	switch output {
	case outputJSON:
		return printJSON(cmd.OutOrStdout(), g.Raw)
	case outputEnv:
		return printEnv(cmd.OutOrStdout(), g.Raw)
	}
	return printGrant(cmd.OutOrStdout(), g)
}
