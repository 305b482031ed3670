package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/locksidecar/locksidecar/internal/client"
)

// answerWithin bounds how long a sidecar may think about an answer, beside a
// wait that was asked for: STORE_TIMEOUT can be several seconds.
const answerWithin = 15 * time.Second

// ask runs a command that asks the sidecar. ctx ends on a signal, or when no
// answer has come for much longer than one can take, a wait not counted.
func (c *connection) ask(cmd *cobra.Command, wait time.Duration, question func(context.Context, *client.Client) error) error {
	sidecar, err := c.open()
	if err != nil {
		return err
	}
	defer sidecar.Close()
	ctx, stop := untilSignal(cmd.Context())
	defer stop()
	limit := wait + answerWithin
	if limit < wait {
		limit = wait
	}
	silence := &client.UnreachableError{URL: sidecar.URL(), Asked: true, Err: fmt.Errorf("nothing has come within %s", readable(limit))}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, silence)
	defer cancel()
	return question(ctx, sidecar)
}

// handleFlags are the flags that name one grant.
type handleFlags struct{ client.Handle }

func (f *handleFlags) add(cmd *cobra.Command) {
	cmd.Flags().Var(nameFlag{&f.Owner}, "owner", "act on this worker's grant only")
	cmd.Flags().Var(fenceFlag{&f.Fence}, "fencing-token", "act on the grant with this token only")
	noFileCompletion(cmd, "owner", "fencing-token")
}

// nameFlag is a text that cannot be empty: --owner "$W" without a W would act
// on everybody's.
type nameFlag struct{ value *string }

func (f nameFlag) String() string {
	if f.value == nil {
		return ""
	}
	return *f.value
}

func (f nameFlag) Type() string { return "NAME" }

func (f nameFlag) Set(text string) error {
	if text == "" {
		return errors.New("it is empty; is the variable set?")
	}
	*f.value = text
	return nil
}

// fenceFlag is a fencing token.
type fenceFlag struct{ value *int64 }

func (f fenceFlag) String() string {
	if f.value == nil || *f.value == 0 {
		return ""
	}
	return strconv.FormatInt(*f.value, 10)
}

func (f fenceFlag) Type() string { return "N" }

func (f fenceFlag) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		return errors.New("it is a whole number above 0, as the grant told it")
	}
	*f.value = n
	return nil
}
