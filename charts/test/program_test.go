package charttest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// program builds the program once; TestMain removes it.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(buildFolder, "locksidecar")
	build := exec.Command("go", "build", "-o", path, "./cmd/locksidecar")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

// run runs the program with nothing but this environment, and returns its exit
// code and what it has written.
func run(t *testing.T, environment []string, args ...string) (int, string) {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, path, args...)
	command.Env = environment
	out, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return command.ProcessState.ExitCode(), string(out)
}

// environ is what a container finds in its environment, with the files of
// its volumes in folder.
func environ(c corev1.Container, folder string) []string {
	var set []string
	for _, e := range c.Env {
		value := strings.Replace(e.Value, "/etc/locksidecar/", folder+"/", 1)
		if e.Value == "/var/lib/locksidecar" {
			value = folder
		}
		if e.ValueFrom != nil {
			value = "x"
		}
		set = append(set, e.Name+"="+value)
	}
	return set
}

// secrets writes what the Secrets of the ci files have, as the kubelet does.
func secrets(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	for name, content := range map[string][]byte{
		"redis/user": []byte("locks"), "redis/password": []byte("p"), "redis/sentinel-user": []byte("locks"), "redis/sentinel-password": []byte("p"),
		"tls/ca.crt": certPEM, "tls/tls.crt": certPEM, "tls/tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	} {
		if err := os.MkdirAll(filepath.Join(folder, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// TestTheProgramTakesItsSettings gives the program the environment of each
// container. exec --direct reads all settings and needs no door; where nobody
// answers it ends with 69, and with 2 if a setting is wrong.
func TestTheProgramTakesItsSettings(t *testing.T) {
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	folder := secrets(t)
	try := func(t *testing.T, c corev1.Container, want int) {
		t.Helper()
		if code, out := run(t, environ(c, folder), "exec", "--direct", "-n", "key", "--", path, "version"); code != want {
			t.Errorf("exit code %d, want %d:\n%s", code, want, out)
		}
	}
	// Nobody listens on these ports, and no name need be looked up.
	here := map[string]string{"single": "127.0.0.1:1", "sentinel": "127.0.0.1:1", "cluster": "127.0.0.1:1", "redlock": "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"}
	for name, v := range ciValues(t) {
		t.Run(name, func(t *testing.T) {
			redis := v["redis"].(map[string]any)
			mode, _ := redis["mode"].(string)
			if mode == "" {
				mode = "single"
			}
			var addresses []any
			for address := range strings.SplitSeq(here[mode], ",") {
				addresses = append(addresses, address)
			}
			v.at("redis.addresses", addresses).at("injector.enabled", true)
			c := installed(t, v)
			try(t, c.create(t, plainPod()).pod.Spec.InitContainers[0], 69)
			annotated := plainPod("ttl", "5s", "max-hold", "10m", "key-prefix", "", "shutdown-mode", "drop", "log-level", "error", "redis-secret", "redis")
			if mode != "redlock" {
				annotated.Annotations["locksidecar.io/redis-tls-secret"] = "redis-tls"
			}
			try(t, c.create(t, annotated).pod.Spec.InitContainers[0], 69)
		})
	}
	t.Run("classic", func(t *testing.T) {
		classic := sidecarFor(t, "classic")
		classic.Env = append(classic.Env, corev1.EnvVar{Name: "LOCKSIDECAR_REDIS_ADDRS", Value: "127.0.0.1:1"})
		try(t, classic, 69)
	})
	t.Run("a mistake", func(t *testing.T) {
		wrong := sidecarFor(t, "native")
		wrong.Env = append(wrong.Env, corev1.EnvVar{Name: "LOCKSIDECAR_SHUTDOWN_GRACE", Value: "20s"})
		try(t, wrong, 2)
	})
}

// TestTheHelmTestTells runs the containers of the chart's test against a real
// Redis, and against one that does not exclude.
func TestTheHelmTestTells(t *testing.T) {
	folder := t.TempDir()
	redis := exec.Command("redis-server", "--port", "0", "--unixsocket", folder+"/r.sock", "--save", "", "--dir", folder)
	start := func(c *exec.Cmd) {
		t.Helper()
		if err := c.Start(); err != nil {
			t.Fatalf("%v; apt-get install redis-server", err)
		}
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	}
	start(redis)
	settings := []string{"LOCKSIDECAR_REDIS_ADDRS=unix://" + folder + "/r.sock"}
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	sidecar := exec.Command(path)
	var log bytes.Buffer
	sidecar.Env, sidecar.Stderr = append(settings, "LOCKSIDECAR_LISTEN=unix://"+folder+"/api.sock", "LOCKSIDECAR_ADMIN_LISTEN=off"), &log
	start(sidecar)
	if code, out := run(t, nil, "wait", "--store", "--url", "unix://"+folder+"/api.sock"); code != 0 {
		t.Fatalf("%d: %s", code, out)
	}

	var pod *corev1.Pod
	objects, _ := decode(t, documents(render(t, minimal())))
	for _, object := range objects {
		if p, ok := object.(*corev1.Pod); ok {
			pod = p
		}
	}
	result := installed(t, minimal()).create(t, pod)
	if result.denied != nil || len(result.warnings) > 0 || result.pod.Spec.InitContainers[0].Name != "locksidecar" {
		t.Errorf("denied %v, warnings %q, init containers %v", result.denied, result.warnings, result.pod.Spec.InitContainers)
	}
	mustBeRestricted(t, result.pod)
	if len(pod.Spec.Containers) != 2 {
		t.Fatalf("%d containers", len(pod.Spec.Containers))
	}
	// The second key is that of exec --direct, which tries to take it again.
	args := func(c corev1.Container, second string) []string {
		args := slices.Clone(c.Args)
		for i, arg := range args {
			switch arg {
			case "/locksidecar":
				args[i] = path
			case "http://127.0.0.1:5625":
				args[i] = "unix://" + folder + "/api.sock"
			case "0": // the exit code, behind -E; then the key
				if second != "" {
					args[i+1] = second
				}
			}
		}
		return args
	}
	var both sync.WaitGroup
	for _, container := range pod.Spec.Containers {
		both.Go(func() {
			if code, out := run(t, settings, args(container, "")...); code != 0 {
				t.Errorf("%s: exit code %d: %s", container.Name, code, out)
			}
		})
	}
	both.Wait()
	if code, out := run(t, settings, args(pod.Spec.Containers[0], "another")...); code == 0 {
		t.Errorf("it passes though the lock could be taken twice: %s", out)
	}
}
