package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/locksidecar/locksidecar/internal/client"
)

// Variables that say which sidecar the commands ask.
const (
	urlVariable       = envPrefix + "_URL"
	tokenFileVariable = envPrefix + "_API_TOKEN_FILE"
)

// connection says which sidecar a command asks.
type connection struct{ url, tokenFile string }

// add adds the flags that say it.
func (c *connection) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.url, "url", "", "`URL` of the sidecar: http://host:port or unix:///path (default: $"+urlVariable+", else "+client.DefaultURL+")")
	cmd.Flags().StringVar(&c.tokenFile, "token-file", "", "`FILE` that holds the sidecar's API token (default: $"+tokenFileVariable+")")
	noFileCompletion(cmd, "url")
}

// open returns a client of the sidecar; nothing is asked yet.
func (c *connection) open() (*client.Client, error) {
	cfg := client.Config{URL: c.url, TokenFile: c.tokenFile}
	from := "--url"
	if cfg.URL == "" {
		cfg.URL, from = os.Getenv(urlVariable), "$"+urlVariable
	}
	if cfg.TokenFile == "" {
		cfg.TokenFile = os.Getenv(tokenFileVariable)
	}
	opened, err := client.New(cfg)
	if err != nil {
		return nil, usageError("%s: %w", from, err)
	}
	return opened, nil
}

// untilSignal returns a context that ends with a [signalError] when the
// process is told to end. stop gives the signals back.
func untilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	over := make(chan struct{})
	go func() {
		defer close(over)
		select {
		case s := <-signals:
			number, _ := s.(syscall.Signal)
			cancel(signalError{number})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
		<-over
	}
}
