// Command locksidecar gives the containers of a pod a distributed lock over
// HTTP on localhost.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/locksidecar/locksidecar/internal/child"
)

func main() {
	if child.IsWarden() {
		os.Exit(child.BeWarden())
	}
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run does what the arguments say and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(append([]string{}, args...)) // nil would stand for those of the process
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	command, err := root.ExecuteC()
	if unknown := noCommand(command, args); unknown != nil {
		err = unknown
	}
	if err != nil {
		printFailure(stdout, outputOf(command), err)
		explain(stderr, command, err)
	}
	return exitCode(err)
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
	log, queue := NewLogger(stderr, settings.LogFormat, settings.LogLevel)
	defer queue.flush(logFlush)
	for _, warning := range warnings {
		log.Warn("settings: " + warning)
	}
	if dev {
		log.Warn("development mode: locks live in this process alone and exclude nobody else")
	}
	exit := func(code int) {
		queue.flush(logFlush)
		os.Exit(code)
	}
	if err := serve(settings, hostname, ReadBuildInfo(), log, exit); err != nil {
		log.Error("failed", "err", err)
		return exitFailure
	}
	return 0
}
