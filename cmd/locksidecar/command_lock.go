package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/locksidecar/locksidecar/internal/client"
)

// lockCommand takes a lock.
func lockCommand() *cobra.Command {
	var (
		at     connection
		want   requestFlags
		renew  = true
		output = outputEnv
	)
	cmd := &cobra.Command{
		Use: "lock KEY", Short: "take a lock, and leave it to the sidecar to keep it", GroupID: groupLocks,
		Long: `Take a lock. The sidecar holds and renews it after this command has ended, until
it is given back by unlock: also if whoever took it has died. For work that is
one command, use exec instead; it gives back what it took.

It prints name=value lines that a shell can evaluate. If the lock was not taken,
they make eval fail, and clear the fencing token.`,
		Example: `  eval "$(locksidecar lock nightly-report --owner "w$$" --wait 30s)" || exit
  ./report.sh
  locksidecar unlock nightly-report --fencing-token "$fencing_token"`,
		Args: oneArgument("KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			want.NoRenew = !renew
			return at.ask(cmd, want.waits(), func(ctx context.Context, sidecar *client.Client) error {
				g, err := take(ctx, sidecar, args[0], want.Request, cmd.OutOrStdout(), output)
				if g.Repeated && output == outputText {
					fmt.Fprintln(cmd.ErrOrStderr(), "this owner held it already")
				}
				return err
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().Var(durationFlag{&want.Wait}, "wait", "stand in line for it for so long (default: try once)")
	want.add(cmd)
	cmd.Flags().BoolVar(&renew, "renew", true, "have the sidecar renew it; false: it ends after --ttl unless extended")
	output.flag(cmd, outputEnv, outputText, outputJSON)
	at.add(cmd)
	return cmd
}

// take takes a lock and prints it. A grant that could not be printed is given
// back: nobody knows of it.
func take(ctx context.Context, sidecar *client.Client, key string, want client.Request, out io.Writer, output outputFormat) (client.Grant, error) {
	g, err := sidecar.Acquire(ctx, key, want)
	if err != nil {
		return client.Grant{}, err
	}
	if g.ValidUntil <= sidecar.Now() {
		return client.Grant{}, giveBack(ctx, sidecar, g, &codedError{code: exitLost, err: errors.New("the lock had run out before its grant got here")})
	}
	hearBrokenPipes()
	switch output {
	case outputJSON:
		err = printJSON(out, g.Raw)
	case outputEnv:
		err = printEnv(out, g.Raw)
	default:
		err = printGrant(out, g)
	}
	if err != nil {
		return client.Grant{}, giveBack(ctx, sidecar, g, &codedError{
			code: exitNotAcquired, err: fmt.Errorf("the lock was given back, since nobody could be told of it: %w", err)})
	}
	return g, nil
}

// giveBack undoes a grant because of why, unless an earlier request of the
// same owner was told of it as well.
func giveBack(ctx context.Context, sidecar *client.Client, g client.Grant, why error) error {
	if g.Repeated {
		return why
	}
	// The caller may have left; the lock must not stay behind.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
	defer cancel()
	h := client.Handle{Fence: g.FencingToken, Owner: g.Owner}
	if err := sidecar.Release(ctx, g.Key, h, client.ReleaseOptions{FreeNow: true}); err != nil {
		return fmt.Errorf("%w; and giving it back failed: %w", why, err)
	}
	return why
}

// waits returns the wait that is asked for.
func (f *requestFlags) waits() time.Duration {
	if f.Wait == nil {
		return 0
	}
	return *f.Wait
}
