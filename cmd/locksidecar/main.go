// Command locksidecar gives the containers of a pod a distributed lock over
// HTTP on localhost.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// Exit codes of this subcommands; 0 is success.
const (
	exitFailure  = 1  // it ran and could not go on
	exitSettings = 2  // settings that cannot be used
	exitUsage    = 64 // a command line that cannot be used (EX_USAGE)
)

const usage = `locksidecar: a distributed lock over HTTP on localhost, for the containers of a pod

  locksidecar            serve, with the settings in the environment (docs/config.md)
  locksidecar dev        serve from memory: no Redis, nothing is shared with other processes
  locksidecar version    say what was built from what
  locksidecar help       say this
`

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run does what the arguments say and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	if len(args) > 1 {
		fmt.Fprintf(stderr, "locksidecar %s takes no arguments\n", command)
		return exitUsage
	}
	switch command {
	case "":
		return serveCommand(false, stderr)
	case "dev":
		return serveCommand(true, stderr)
	case "version", "--version":
		fmt.Fprintln(stdout, ReadBuildInfo())
		return 0
	case "help", "--help", "-h":
		fmt.Fprint(stdout, usage)
		return 0
	}
	fmt.Fprintf(stderr, "locksidecar: %q is no command\n\n%s", command, usage)
	return exitUsage
}

// serveCommand reads the settings and serves until it is told to stop.
func serveCommand(dev bool, stderr io.Writer) int {
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "unknown"
	}
	settings, warnings, err := LoadSettings(hostname, dev)
	var mistakes *SettingsError
	if errors.As(err, &mistakes) {
		fmt.Fprintln(stderr, err)
		return exitSettings
	}
	log := NewLogger(stderr, settings.LogFormat, settings.LogLevel)
	for _, warning := range warnings {
		log.Warn("settings: " + warning)
	}
	if dev {
		log.Warn("development mode: locks live in this process alone and exclude nobody else")
	}
	if err := serve(settings, hostname, ReadBuildInfo(), log); err != nil {
		log.Error("failed", "err", err)
		return exitFailure
	}
	return 0
}
