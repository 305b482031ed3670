package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"
)

// installCommand copies this program into a directory.
func installCommand() *cobra.Command {
	return &cobra.Command{
		Use: "install DIR", Short: "copy this program into a directory, such as a shared volume", GroupID: groupSidecar,
		Long: `Copy this very program to DIR/locksidecar, with mode 0755: into a volume that the
application's containers mount, so that they need not have it in their images.
It replaces what is there in one step, also while that is running.`,
		Example: `  locksidecar install /opt/locksidecar`,
		Args:    oneArgument("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			target := filepath.Join(args[0], "locksidecar")
			if err := install(target); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), target)
			return err
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault // whatever the shell does for files
		},
	}
}

// install copies the running program to the target. It writes beside the
// target and renames, since a program that runs cannot be written to, and one
// that is half there must not be run.
func install(target string) (err error) {
	self, err := openSelf()
	if err != nil {
		return fmt.Errorf("open this program: %w", err)
	}
	defer self.Close()
	if info, err := os.Stat(target); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory", target)
	}
	temporary, err := os.CreateTemp(filepath.Dir(target), ".locksidecar-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = temporary.Close() // it is closed already, or of no use
			err = errors.Join(err, os.Remove(temporary.Name()))
		}
	}()
	if _, err = io.Copy(temporary, self); err != nil {
		return err
	}
	if err = temporary.Chmod(0o755); err != nil { // whatever the umask
		return err
	}
	if err = temporary.Sync(); err != nil {
		return err
	}
	if err = temporary.Close(); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), target)
}

// openSelf opens the program that is running, also if its path leads
// elsewhere by now.
func openSelf() (*os.File, error) {
	if runtime.GOOS == "linux" {
		return os.Open("/proc/self/exe")
	}
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}
