package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/locksidecar/locksidecar/internal/client"
)

// lsCommand lists locks.
func lsCommand() *cobra.Command {
	var (
		at     connection
		output = outputText
	)
	cmd := &cobra.Command{
		Use: "ls", Short: "list what the sidecar holds, waits for or has lost", GroupID: groupLocks,
		Long: `List all locks that this sidecar holds, asks for, waits for, gives back or has lost
in the last ten minutes, the newest first.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return at.ask(cmd, 0, func(ctx context.Context, sidecar *client.Client) error {
				list, err := sidecar.List(ctx)
				if err != nil {
					return err
				}
				if output == outputJSON {
					return printJSON(cmd.OutOrStdout(), list.Raw)
				}
				return printList(cmd, list.Locks, time.Now())
			})
		},
	}
	output.flag(cmd, outputText, outputJSON)
	at.add(cmd)
	return cmd
}

// printList prints one line for each lock. now is what the times of the list
// are told against; the sidecar reads the same machine's wall clock.
func printList(cmd *cobra.Command, locks []client.Entry, now time.Time) error {
	r := newRows(cmd.OutOrStdout())
	fmt.Fprintln(r, "KEY\tSTATE\tFOR\tVALID\tTOKEN\tOWNER\tNOTE")
	for _, e := range locks {
		state, valid, token := inWords(e.State), "-", "-"
		if e.Held != nil {
			valid, token = readable(millis(e.Held.ValidForMS)), strconv.FormatInt(e.Held.FencingToken, 10)
		}
		if e.Lost != nil {
			state, token = "lost: "+inWords(e.Lost.Cause), strconv.FormatInt(e.Lost.FencingToken, 10)
		}
		fmt.Fprintf(r, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", visible(e.Key), state, readable(now.Sub(e.At)), valid, token,
			orDash(visible(e.Owner)), orDash(visible(e.Note)))
	}
	return r.Flush()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
