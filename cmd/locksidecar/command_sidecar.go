package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/locksidecar/locksidecar/internal/client"
)

// drainCommand has the sidecar refuse new grants.
func drainCommand() *cobra.Command {
	var at connection
	cmd := &cobra.Command{
		Use: "drain", Short: "have the sidecar refuse new locks from now on", GroupID: groupSidecar,
		Long: `Have the sidecar refuse new locks from now on and end all waits. What it holds it
keeps and renews. There is no way back but a restart. A preStop hook uses it to
give notice.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return at.ask(cmd, 0, func(ctx context.Context, sidecar *client.Client) error {
				return sidecar.Drain(ctx)
			})
		},
	}
	at.add(cmd)
	return cmd
}

// quitCommand stops the sidecar.
func quitCommand() *cobra.Command {
	var at connection
	cmd := &cobra.Command{
		Use: "quit", Short: "stop the sidecar, as SIGTERM does", GroupID: groupSidecar,
		Long: `Have the sidecar shut down as on SIGTERM, with exit code 0: at the end of a Job, on
clusters without native sidecars. It returns when the shutdown has begun.`,
		Example: `  trap 'locksidecar quit' EXIT`,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return at.ask(cmd, 0, func(ctx context.Context, sidecar *client.Client) error {
				return sidecar.Quit(ctx)
			})
		},
	}
	at.add(cmd)
	return cmd
}

const (
	waitEvery  = 100 * time.Millisecond // how often wait asks
	onceWithin = 2 * time.Second        // how long a single question may take
)

// waitCommand waits until the sidecar is ready.
func waitCommand() *cobra.Command {
	var (
		at    connection
		limit = new(30 * time.Second)
		store bool
	)
	cmd := &cobra.Command{
		Use: "wait", Short: "block until the sidecar is ready", GroupID: groupSidecar,
		Long: `Block until the sidecar answers on its lock API and takes requests for locks: what
an application does at its start where nothing else orders the containers. With
--store it also waits until the store, such as Redis, answers the sidecar.`,
		Example: `  locksidecar wait --max 30s --store && exec ./app`,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return at.ask(cmd, *limit, func(ctx context.Context, sidecar *client.Client) error {
				return waitFor(ctx, sidecar, *limit, store)
			})
		},
	}
	cmd.Flags().Var(durationFlag{&limit}, "max", "give up after so long; 0 asks once")
	cmd.Flags().BoolVar(&store, "store", false, "wait until its store answers too")
	noFileCompletion(cmd, "max")
	at.add(cmd)
	return cmd
}

// waitFor asks until the sidecar is ready. The error says why it was not when
// the time was over.
func waitFor(ctx context.Context, sidecar *client.Client, limit time.Duration, store bool) error {
	until := time.Now().Add(limit)
	if limit == 0 {
		limit = onceWithin
	}
	frozen := &client.UnreachableError{URL: sidecar.URL(), Asked: true, Err: fmt.Errorf("nothing has come within %s", readable(limit))}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, frozen)
	defer cancel()
	var last error // what a whole answer said
	for {
		err := readiness(ctx, sidecar, store)
		var refused *client.RefusedError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil && errors.Is(context.Cause(ctx), frozen) && last != nil:
			return fmt.Errorf("not ready: %w", last)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &refused) && (refused.Code == "forbidden_host" || refused.Code == "cross_origin"):
			return err // will not change by itself
		case time.Until(until) < waitEvery:
			return fmt.Errorf("not ready: %w", err)
		}
		last = err
		select {
		case <-time.After(waitEvery):
		case <-ctx.Done():
		}
	}
}

// readiness asks once; nil says that the sidecar is ready.
func readiness(ctx context.Context, sidecar *client.Client, store bool) error {
	s, err := sidecar.Status(ctx)
	switch {
	case err != nil:
		return err
	case s.Draining:
		return unavailable("the sidecar takes no requests for locks any more")
	case store && s.Store != "ok":
		return unavailable("the sidecar answers, but: %s", s.Store)
	}
	return nil
}
