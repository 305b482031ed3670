package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completeWithin bounds how long a shell waits for the names of locks.
const completeWithin = 500 * time.Millisecond

// completeKeys offers the keys of locks that are in one of the states, or in
// any, at the sidecar that the command line names. If it does not answer,
// nothing is offered.
func (c *connection) completeKeys(states ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		const directive = cobra.ShellCompDirectiveNoFileComp
		if len(args) > 0 {
			return nil, directive
		}
		sidecar, err := c.open()
		if err != nil {
			return nil, directive
		}
		defer sidecar.Close()
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
		defer cancel()
		list, err := sidecar.List(ctx)
		if err != nil {
			return nil, directive
		}
		var keys []string
		for _, e := range list.Locks {
			if !strings.HasPrefix(e.Key, typed) || len(states) > 0 && !slices.Contains(states, e.State) || visible(e.Key) != e.Key {
				continue
			}
			keys = append(keys, e.Key+"\t"+strings.TrimSpace(inWords(e.State)+" "+visible(e.Owner)))
		}
		slices.Sort(keys)
		return slices.CompactFunc(keys, func(a, b string) bool {
			first, _, _ := strings.Cut(a, "\t")
			second, _, _ := strings.Cut(b, "\t")
			return first == second
		}), directive
	}
}
