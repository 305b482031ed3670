package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/locksidecar/locksidecar/internal/client"
	"github.com/locksidecar/locksidecar/internal/locker"
)

// breakCommand takes a lock away from whoever has it.
func breakCommand() *cobra.Command {
	var (
		yes    bool
		output = outputText
	)
	cmd := &cobra.Command{
		Use: "break KEY", Short: "take a lock away from whoever holds it: for the person on call", GroupID: groupLocks,
		Long: `Take a lock away from its holder, wherever that is. It needs no sidecar: it asks the
store itself, with the settings that the sidecar has (docs/config.md), so it is
best run in a sidecar's container.

The holder cannot renew the lock any more and is told "lost: taken" when it
tries, within a third of its TTL. Nobody else gets the lock before the lease
could have ended; those in line get it then, in their order. So the two never
overlap, which they do after redis-cli DEL.`,
		Example: `  locksidecar break nightly-report
  kubectl exec POD -c locksidecar -- /locksidecar break nightly-report --yes`,
		Args: oneArgument("KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := locker.ParseKey(args[0])
			if err != nil {
				return usageError("%w", err)
			}
			st, err := openStoreOnly(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer st.close()
			b := breaking{store: st, key: key, yes: yes, in: cmd.InOrStdin(), errs: cmd.ErrOrStderr()}
			o, err := b.run(cmd.Context())
			if o.State != "" {
				if printErr := printOccupancy(cmd.OutOrStdout(), key, o, output); printErr != nil && err == nil {
					err = printErr
				}
			}
			return err
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	output.flag(cmd, outputText, outputJSON)
	return cmd
}

// openStoreOnly opens the store that the settings name, for a command that
// needs no sidecar.
func openStoreOnly(stderr io.Writer) (*store, error) {
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "unknown"
	}
	settings, warnings, err := LoadSettings(hostname, false)
	if err != nil {
		return nil, &codedError{code: exitSettings, err: err}
	}
	for _, warning := range warnings {
		fmt.Fprintln(stderr, "settings: "+warning)
	}
	if settings.RedisMode == ModeMemory {
		return nil, unavailable("the locks of a sidecar in memory mode are in that process alone; give them back there, or restart it")
	}
	return openStore(settings, slog.New(slog.DiscardHandler))
}

// breaking is one run of the break command.
type breaking struct {
	store *store
	key   locker.Key
	yes   bool
	in    io.Reader
	errs  io.Writer
}

// run takes the lock away and returns who had it, and until when nobody can
// have it now.
func (b *breaking) run(ctx context.Context) (locker.Occupancy, error) {
	breaker, ok := b.store.Backend.(locker.Breaker)
	if !ok {
		return locker.Occupancy{}, unavailable("locks cannot be broken in this REDIS_MODE")
	}
	seen, err := insist(ctx, b.store.timeout, func(ctx context.Context) (locker.Sighting, error) {
		return breaker.Sight(ctx, b.key)
	})
	if err != nil {
		return locker.Occupancy{}, err
	}
	switch seen.State {
	case locker.OccupancyBroken:
		return seen.Occupancy, nil
	case locker.OccupancyHeld:
	default:
		return seen.Occupancy, &codedError{code: exitNotAcquired, err: errors.New("nobody holds it; nothing was changed")}
	}
	if err := b.confirm(seen.Occupancy); err != nil {
		return locker.Occupancy{}, err
	}
	breach := locker.Breach{Key: b.key, Token: seen.Token}
	if seen.Holder != nil {
		breach.Holder = seen.Holder.Pod
	}
	left, err := insist(ctx, b.store.timeout, func(ctx context.Context) (time.Duration, error) {
		return breaker.Break(ctx, breach)
	})
	switch {
	case errors.Is(err, locker.ErrTaken), errors.Is(err, locker.ErrGone):
		return locker.Occupancy{}, &codedError{code: exitNotAcquired, err: errors.New("it is not held any more by whom it was; nothing was changed, look again")}
	case err != nil && !locker.CertainNo(err):
		return locker.Occupancy{}, fmt.Errorf("it is not known whether the lock was broken; do it again, which does no harm: %w", err)
	case err != nil:
		return locker.Occupancy{}, err
	}
	seen.State, seen.ExpiresIn = locker.OccupancyBroken, left
	return seen.Occupancy, nil
}

// confirm asks whether it is meant.
func (b *breaking) confirm(o locker.Occupancy) error {
	if b.yes {
		return nil
	}
	if !isTerminal(b.in) {
		return usageError("it asks before it breaks a lock, and standard input is no terminal; say --yes if it is meant")
	}
	if err := printOccupancy(b.errs, b.key, o, outputText); err != nil {
		return err
	}
	fmt.Fprint(b.errs, "Take it away from its holder? [y/N] ")
	answer, _ := bufio.NewReader(b.in).ReadString('\n') // the end of the input is a no
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return &codedError{code: exitFailure, err: errors.New("nothing was changed")}
	}
	return nil
}

// insist asks the store, a few times if it does not answer: what is asked must
// do no harm when it is asked again.
func insist[V any](ctx context.Context, timeout time.Duration, ask func(context.Context) (V, error)) (answer V, err error) {
	var failure *locker.StoreError
	for range 3 {
		// A connection may have to be opened first.
		once, cancel := context.WithTimeout(ctx, 2*timeout)
		answer, err = ask(once)
		cancel()
		if !errors.As(err, &failure) || failure.Reason == locker.StoreAuthFailed {
			return answer, err
		}
	}
	return answer, err
}

// printOccupancy prints who has a key, as the API tells it.
func printOccupancy(out io.Writer, key locker.Key, o locker.Occupancy, output outputFormat) error {
	told := client.Occupancy{State: string(o.State)}
	if o.Holder != nil {
		told.Holder = &client.Holder{Pod: o.Holder.Pod, Note: o.Holder.Note}
		if since := o.Holder.Since.UTC(); !o.Holder.Since.IsZero() {
			told.Holder.Since = &since
		}
	}
	expires := o.ExpiresIn.Milliseconds()
	told.ExpiresInMS, told.QueueLength = &expires, &o.QueueLength
	if output == outputJSON {
		return json.NewEncoder(out).Encode(struct {
			Key locker.Key `json:"key"`
			client.Occupancy
		}{key, told})
	}
	return printAbsence(out, string(key), &client.RefusedError{Occupancy: told})
}
