package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// kind starts its nodes with --privileged, which asks for every capability.
// Some virtual machines have no CAP_SYS_RESOURCE to give, and their engine
// refuses. There this test program puts itself first on the PATH under the
// name docker, and asks for the rest of what --privileged means by name.

// capSysResource is the number of the capability in the kernel.
const capSysResource = 24

// lacksSysResource says whether nobody on this machine can have the
// capability.
func lacksSysResource() bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if mask, ok := strings.CutPrefix(line, "CapBnd:"); ok {
			caps, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && caps&(1<<capSysResource) == 0
		}
	}
	return false
}

// standBeforeDocker puts a link to this program into the folder and the folder
// in front of the PATH.
func standBeforeDocker(folder string) error {
	docker, err := exec.LookPath("docker")
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Symlink(self, filepath.Join(folder, "docker")); err != nil {
		return err
	}
	if err := os.Setenv("E2E_DOCKER", docker); err != nil {
		return err
	}
	return os.Setenv("PATH", folder+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// asDocker becomes the real docker.
func asDocker() {
	docker := os.Getenv("E2E_DOCKER")
	args := dockerArgs(os.Args[1:])
	err := syscall.Exec(docker, append([]string{"docker"}, args...), os.Environ())
	fmt.Fprintln(os.Stderr, "e2e:", docker, err)
	os.Exit(1)
}

// dockerArgs are the arguments without CAP_SYS_RESOURCE in them.
func dockerArgs(args []string) []string {
	var out []string
	for i, arg := range args {
		switch {
		case arg != "--privileged" || i == 0:
			out = append(out, arg)
		case args[0] == "run":
			out = append(out, "--cap-add=ALL", "--cap-drop=SYS_RESOURCE",
				"--security-opt=systempaths=unconfined", "--device-cgroup-rule=a *:* rwm")
		}
		// For exec the option is left out: without it a process has the rights
		// of the node's own.
	}
	return out
}

func TestDockerArgs(t *testing.T) {
	for args, want := range map[string]string{
		"run --name node --privileged image": "run --name node --cap-add=ALL --cap-drop=SYS_RESOURCE --security-opt=systempaths=unconfined --device-cgroup-rule=a *:* rwm image",
		"exec --privileged node ls":          "exec node ls",
		"ps --all":                           "ps --all",
	} {
		if got := strings.Join(dockerArgs(strings.Fields(args)), " "); got != want {
			t.Errorf("docker %s becomes\n%s\nwant\n%s", args, got, want)
		}
	}
}
