package main

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// hostileKeys are keys with what shells give a meaning to. Each is the only one
// that begins with its first two bytes.
var hostileKeys = []string{"reports:nightly", "x=1=2", "it's", "é$x;(touch>pwned)", `q"*`}

// typed runs an interactive shell on a terminal and types the lines.
func (c commander) typed(shell string, lines ...string) result {
	c.t.Helper()
	if _, err := exec.LookPath("script"); err != nil {
		c.t.Skip("SKIPPED: script is missing; apt-get install bsdutils")
	}
	cmd := c.prepare(exec.Command("script", "-qec", shell, "/dev/null"))
	cmd.Env = append(cmd.Env, "TERM=dumb", "LC_ALL=C.UTF-8", "COLUMNS=200")
	cmd.Stdin = strings.NewReader(strings.Join(append(lines, "exit"), "\n") + "\n")
	timer := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	return c.finish(cmd)
}

// needShell skips the test, and says so, unless the shell is there. bash is
// part of every Debian.
func needShell(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err == nil {
		return
	} else if name == "bash" {
		t.Fatal(err)
	}
	t.Skipf("SKIPPED: %s is missing; apt-get install %[1]s", name)
}

func TestAShellCompletesCommandsFlagsAndTheKeysOfLocks(t *testing.T) {
	t.Parallel()
	for shell, start := range map[string]struct {
		command string
		lines   []string
	}{
		"bash": {"bash --norc --noprofile -i", []string{"source <(locksidecar completion bash)"}},
		"zsh":  {"zsh -f -i", []string{"autoload -U compinit; compinit -u -D", "source <(locksidecar completion zsh)"}},
	} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			needShell(t, shell)
			c := launch{Args: []string{"dev"}}.serve(t).cli()
			for _, key := range hostileKeys {
				c.run("lock", key, "--owner", "w1").want(t, 0)
			}
			lines := start.lines
			for _, typed := range []string{"reports:n", "x=", "it", "é", "q"} {
				lines = append(lines, "locksidecar unl\t"+typed+"\t --own\tw1")
			}
			lines = append(lines, `test -e pwned && echo "it was" run`)
			for try := 1; ; try++ {
				r := c.typed(start.command, lines...)
				left := c.run("ls").want(t, 0).stdout
				if strings.Contains(r.stdout, "it was run") {
					t.Errorf("what is in a key was run: %s", r)
				}
				if strings.Count(left, "\n") == 1 {
					return
				}
				if try == 3 { // a shell does not wait for long
					t.Fatalf("not all were given back:\n%s\n%s", left, r)
				}
			}
		})
	}
}

func TestFishCompletesCommandsFlagsAndTheKeysOfLocks(t *testing.T) {
	t.Parallel()
	needShell(t, "fish")
	c := launch{Args: []string{"dev"}}.serve(t).cli()
	for _, key := range hostileKeys {
		c.run("lock", key).want(t, 0)
	}
	for line, want := range map[string][]string{
		"unl":               {"unlock"},
		"unlock --fenc":     {"--fencing-token"},
		"unlock ":           hostileKeys,
		"status reports:":   {"reports:nightly"},
		"extend x=1":        {"x=1=2"},
		"lock -o ":          {"env", "text", "json"},
		"lock ":             nil,
		"unlock reports:n ": nil,
	} {
		cmd := c.prepare(exec.Command("fish", "--no-config", "-c", `locksidecar completion fish | source; complete -C "locksidecar $argv[1]"`, line))
		cmd.Env = append(cmd.Env, "LC_ALL=C.UTF-8")
		out := c.finish(cmd).want(t, 0).stdout
		got := make(map[string]bool)
		for offered := range strings.Lines(out) {
			word, _, _ := strings.Cut(strings.TrimSuffix(offered, "\n"), "\t")
			got[word] = true
		}
		for _, word := range want {
			if !got[word] {
				t.Errorf("after %q it offers %q, and not %q", line, out, word)
			}
		}
		if len(got) != len(want) {
			t.Errorf("after %q it offers %q; want %q", line, out, want)
		}
	}
}

func TestCompletionKeepsQuietWithoutASidecarAndOffersWhatCanBeActedOn(t *testing.T) {
	t.Parallel()
	nowhere := commander{t, []string{"URL=unix:///nonexistent/s"}}
	if out := nowhere.run("__complete", "unlock", "").want(t, 0).stdout; out != ":4\n" {
		t.Errorf("without a sidecar it offers %q", out)
	}
	p := launch{Args: []string{"dev"}}.serve(t)
	c := p.cli()
	c.run("lock", "held").want(t, 0)
	c.run("lock", "lost", "--ttl", "1s", "--max-hold", "1s").want(t, 0)
	p.awaitState("lost", 10*time.Second, 410, "lost")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"unlock", ""}, "held\theld\n:4\n"},
		{[]string{"status", ""}, "held\theld\nlost\tlost\n:4\n"},
		{[]string{"status", "lo"}, "lost\tlost\n:4\n"},
		{[]string{"status", "held", ""}, ":4\n"},
		{[]string{"completion", ""}, "bash\nzsh\nfish\n:4\n"},
		{[]string{"ls", ""}, ":4\n"},
		{[]string{"install", ""}, ":0\n"},
		{[]string{"unlock", "--url", "unix:///nonexistent/s", ""}, ":4\n"},
	} {
		if out := c.run(append([]string{"__complete"}, tt.args...)...).want(t, 0).stdout; out != tt.want {
			t.Errorf("after %q it offers %q, want %q", tt.args, out, tt.want)
		}
	}
	elsewhere := c.env[0][len("URL="):]
	if out := nowhere.run("__complete", "unlock", "--url", elsewhere, "").want(t, 0).stdout; out != "held\theld\n:4\n" {
		t.Errorf("with --url it offers %q", out)
	}
}
