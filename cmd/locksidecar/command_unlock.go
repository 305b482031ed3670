package main

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/locksidecar/locksidecar/internal/client"
)

// unlockCommand gives locks back.
func unlockCommand() *cobra.Command {
	var (
		at      connection
		handle  handleFlags
		options client.ReleaseOptions
		all     bool
		output  = outputText
	)
	cmd := &cobra.Command{
		Use: "unlock {KEY | --owner NAME | --all}", Short: "give a lock back, or all of one owner", GroupID: groupLocks,
		Long: `Give a lock back that this sidecar holds. Without KEY, give back all locks of one
owner, or of everybody: what an application does when it starts, as its crash
gave nothing back.`,
		Example: `  locksidecar unlock nightly-report --fencing-token "$fencing_token"
  locksidecar unlock nightly-report --owner w1 --free-now
  locksidecar unlock --owner w1`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if all {
					return usageError("--all is without a KEY")
				}
				return oneArgument("KEY")(cmd, args)
			}
			switch {
			case handle.Fence != 0 || options.Force || options.FreeNow:
				return usageError("KEY is missing")
			case handle.Owner == "" && !all:
				return usageError("say which: KEY, --owner NAME or --all")
			case handle.Owner != "" && all:
				return usageError("--owner and --all contradict each other; give one")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return at.ask(cmd, 0, func(ctx context.Context, sidecar *client.Client) error {
				var done client.Released
				var err error
				if len(args) > 0 {
					done, err = releaseOne(ctx, sidecar, args[0], handle.Handle, options)
				} else {
					done, err = sidecar.ReleaseWhere(ctx, handle.Owner, all)
				}
				if err != nil {
					return err
				}
				return printReleased(cmd, done, output)
			})
		},
		ValidArgsFunction: at.completeKeys("held", "at_risk"),
	}
	handle.add(cmd)
	cmd.Flags().BoolVar(&options.Force, "force", false, "whatever its owner is")
	cmd.Flags().BoolVar(&options.FreeNow, "free-now", false, "free it at once even if its minimum hold is not over: the work failed, let another try")
	cmd.Flags().BoolVar(&all, "all", false, "all locks that this sidecar holds, whoever took them")
	output.flag(cmd, outputText, outputJSON)
	at.add(cmd)
	return cmd
}

// releaseOne gives one lock back and tells it as if it had been many.
func releaseOne(ctx context.Context, sidecar *client.Client, key string, h client.Handle, o client.ReleaseOptions) (client.Released, error) {
	if err := sidecar.Release(ctx, key, h, o); err != nil {
		return client.Released{}, err
	}
	raw, err := json.Marshal(map[string][]string{"released": {key}, "unconfirmed": {}})
	return client.Released{Released: []string{key}, Raw: raw}, err
}

func printReleased(cmd *cobra.Command, done client.Released, output outputFormat) error {
	if output == outputJSON {
		if err := printJSON(cmd.OutOrStdout(), done.Raw); err != nil {
			return err
		}
	} else {
		r := newRows(cmd.OutOrStdout())
		for _, key := range done.Released {
			r.add("released", visible(key))
		}
		for _, key := range done.Unconfirmed {
			r.add("not confirmed", visible(key))
		}
		if err := r.Flush(); err != nil {
			return err
		}
	}
	if n := len(done.Unconfirmed); n > 0 {
		return unavailable("%d releases are not confirmed: these locks are not renewed any more, and the sidecar goes on releasing them", n)
	}
	return nil
}
