package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/locksidecar/locksidecar/internal/client"
)

// statusCommand tells how a lock is doing.
func statusCommand() *cobra.Command {
	var (
		at     connection
		handle handleFlags
		quiet  bool
		output = outputText
	)
	cmd := &cobra.Command{
		Use: "status KEY", Short: "tell whether a lock is held here, and who has it otherwise", GroupID: groupLocks,
		Long: `Tell how a lock is doing. The exit code is 0 only while this sidecar holds it and
the lease is valid, 75 if it does not hold it, and 76 if it has lost it.

Workers who share a sidecar must say which grant they mean: without --owner or
--fencing-token it is whatever the sidecar holds.`,
		Example: `  locksidecar status nightly-report
  locksidecar status -q nightly-report --fencing-token "$fencing_token" || exit`,
		Args: oneArgument("KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if quiet {
				output = outputText
			}
			return at.ask(cmd, 0, func(ctx context.Context, sidecar *client.Client) error {
				g, err := validGrant(ctx, sidecar, args[0], handle.Handle)
				var refused *client.RefusedError
				code := exitCode(err)
				switch {
				case err == nil && quiet:
					return nil
				case err == nil:
					return printHolding(cmd, g, output)
				case code != exitNotAcquired && code != exitLost || !errors.As(err, &refused):
					return err
				}
				if output == outputText && !quiet {
					if err := printAbsence(cmd.OutOrStdout(), args[0], refused); err != nil {
						return err
					}
				}
				return &codedError{code: code, err: err, said: true}
			})
		},
		ValidArgsFunction: at.completeKeys(),
	}
	handle.add(cmd)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing; the exit code tells it")
	output.flag(cmd, outputText, outputJSON, outputEnv)
	at.add(cmd)
	return cmd
}

// validGrant asks for a lock that is held. An answer that was so late that the
// lease had ended when it came is worth nothing, and says nothing of now: it
// is asked for again.
func validGrant(ctx context.Context, sidecar *client.Client, key string, h client.Handle) (client.Grant, error) {
	for range 3 {
		g, err := sidecar.Get(ctx, key, h)
		if err != nil || g.ValidUntil > sidecar.Now() {
			return g, err
		}
	}
	return client.Grant{}, &client.UnreachableError{URL: sidecar.URL(), Asked: true,
		Err: errors.New("the answers come after what they promise has ended; does it share this machine's boot-time clock?")}
}
