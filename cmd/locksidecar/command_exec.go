package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// execCommand holds a lock while a command runs.
func execCommand() *cobra.Command {
	var (
		x         = execution{conflict: exitNotAcquired}
		want      requestFlags
		wait      *time.Duration
		at        connection
		direct    bool
		killAfter *time.Duration
	)
	cmd := &cobra.Command{
		Use: "exec [flags] KEY -- CMD [ARG...]", Short: "hold a lock while a command runs", GroupID: groupLocks,
		DisableFlagsInUseLine: true,
		Long: `Take a lock, run CMD, give the lock back, and end with CMD's exit code. There is no
shell in between. CMD finds the lock in LOCK_KEY and its fencing token in
LOCK_FENCING_TOKEN. By default it waits for the lock for ever.

If the lock cannot be renewed, CMD is told to end (TERM) --kill-after before the
lease is over, and is killed with all that it has started (KILL) before others
can have the lock. If the lock is lost for another reason, or nothing is heard of
the sidecar any more, TERM comes at once and KILL --kill-after later, but never
after the end of the lease. Then the exit code is 76.

CMD is a process group of its own. TERM, INT, HUP, QUIT and WINCH are passed on to
the group, USR1 and USR2 to CMD alone. What CMD leaves running in its group is
stopped before the lock is given back; run what is to outlive it by setsid. If
this process is killed, CMD and its group are killed, and the lock is free at
once.

With --direct no sidecar is needed: the store is asked by this very process, with
the settings that a sidecar has (docs/config.md).`,
		Example: `  locksidecar exec nightly-report -- ./report.sh
  locksidecar exec -n -E 0 --min-hold 50s every-minute -- ./tick    # cron: one pod does it, the others are content
  locksidecar exec --wait 30s --ttl 10s --kill-after 3s shop/import -- sh -c './import "$LOCK_FENCING_TOKEN"'
  LOCKSIDECAR_REDIS_ADDRS=redis:6379 locksidecar exec --direct backup -- ./backup.sh`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch dash := cmd.Flags().ArgsLenAtDash(); {
			case len(args) == 0 || dash == 0:
				return usageError("KEY is missing")
			case dash < 0 && len(args) == 1, dash == len(args):
				return usageError("CMD is missing; it follows after --, as in: locksidecar exec %s -- ./report.sh", args[0])
			case dash < 0:
				return usageError("put -- before CMD, as in: locksidecar exec %s -- %s", args[0], args[1])
			case dash > 1:
				return usageError("it takes one KEY before --; what is %q?", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			x.key, x.args = args[0], args[1:]
			x.killAfter = killAfter
			x.queue.limit = wait
			switch {
			case x.queue.once && wait != nil:
				return usageError("-n does not wait; leave out --wait")
			case wait != nil && *wait == 0:
				x.queue.once = true
			}
			if err := x.checkKillAfter(want.TTL); err != nil {
				return err
			}
			return x.run(cmd.ErrOrStderr(), func(stderr io.Writer) (lockSource, error) {
				if direct {
					return openDirect(x.key, want.Request, stderr)
				}
				sidecar, err := at.open()
				if err != nil {
					return nil, err
				}
				return &sidecarSource{client: sidecar, key: x.key, want: want.Request}, nil
			})
		},
	}
	flags := cmd.Flags()
	flags.VarP(durationFlag{&wait}, "wait", "w", "stand in line for the lock for so long (default: for ever)")
	flags.BoolVarP(&x.queue.once, "nonblock", "n", false, "try once, do not wait")
	flags.VarP(codeFlag{&x.conflict}, "conflict-exit-code", "E", "exit code if the lock is not to be had, instead of 75")
	want.add(cmd)
	flags.Var(durationFlag{&killAfter}, "kill-after", "time from TERM to KILL, at most a third of the lease (default: a sixth of it, at most 10s)")
	flags.BoolVar(&direct, "direct", false, "need no sidecar; ask the store, with a sidecar's settings")
	at.add(cmd)
	noFileCompletion(cmd, "wait", "conflict-exit-code", "kill-after")
	return cmd
}

// codeFlag is a flag that takes an exit code.
type codeFlag struct{ value *int }

func (f codeFlag) String() string {
	if f.value == nil || *f.value == exitNotAcquired {
		return ""
	}
	return strconv.Itoa(*f.value)
}

func (f codeFlag) Type() string { return "CODE" }

func (f codeFlag) Set(text string) error {
	code, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		return fmt.Errorf("it is a number from 0 to 255")
	}
	*f.value = int(code)
	return nil
}
