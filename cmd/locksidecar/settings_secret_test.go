package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"testing"
)

func TestASecretIsNeverPrinted(t *testing.T) {
	const text = "hunter2"
	s := mustLoad(t, with("REDIS_ADDRS", "redis://alice:"+text+"@redis"))
	var log bytes.Buffer
	for _, format := range []LogFormat{LogJSON, LogText} {
		logged(&log, format, slog.LevelInfo, func(logger *slog.Logger) {
			logger.Info("settings", "secret", s.RedisPassword, "pointer", &s.RedisPassword, "addrs", s.RedisAddrs, "all", s)
		})
	}
	encoded, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	printed := log.String() + string(encoded)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t"} {
		for _, v := range []any{s.RedisPassword, &s.RedisPassword, s.RedisAddrs, s.RedisAddrs[0], s, &s} {
			printed += fmt.Sprintf(verb, v) + "\n"
		}
	}
	for _, shape := range []string{text, fmt.Sprintf("%x", text), fmt.Sprintf("%X", text), fmt.Sprint([]byte(text))} {
		if i := strings.Index(printed, shape); i >= 0 {
			t.Errorf("printed: %s", printed[max(0, i-60):i])
		}
	}
	if s.RedisPassword.Reveal() != text {
		t.Error("the secret is not revealed to whoever asks")
	}
}

func TestASecretPrintsAsAPlaceholder(t *testing.T) {
	secret := NewSecret("hunter2")
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		if got := fmt.Sprintf(verb, secret); got != "[secret]" {
			t.Errorf("%s prints %s", verb, got)
		}
	}
	if got, err := json.Marshal(secret); string(got) != `"[secret]"` || err != nil {
		t.Errorf("JSON %s, error %v", got, err)
	}
	if got := secret.LogValue().String(); got != "[secret]" {
		t.Errorf("logged as %s", got)
	}
}

func TestARotatedSecretIsReadAnew(t *testing.T) {
	for name, sourceOf := range map[string]func(*Settings) func() (string, error){
		"REDIS_USERNAME_FILE": (*Settings).UsernameSource,
		"REDIS_PASSWORD_FILE": (*Settings).PasswordSource,
		"API_TOKEN_FILE":      (*Settings).TokenSource,
	} {
		t.Run(name, func(t *testing.T) {
			path, other := writeFile(t, "first\n"), writeFile(t, "other\n")
			s := mustLoad(t, with("REDIS_PASSWORD_FILE", other, name, path))
			read := sourceOf(&s)
			for _, want := range []string{"first", "second"} {
				if err := os.WriteFile(path, []byte(want+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				if got, err := read(); got != want || err != nil {
					t.Errorf("got %q, want %q; error %v", got, want, err)
				}
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if got, err := read(); got != "" || !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("without the file: %q, error %v", got, err)
			}
		})
	}
}

func TestOneLineBreakAtTheEndOfAFileIsNotPartOfTheSecret(t *testing.T) {
	for content, want := range map[string]string{
		"a": "a", "a\n": "a", "a\r\n": "a", "a\n\n": "a\n", " a ": " a ", "a\nb\n": "a\nb",
	} {
		secret, err := FilePath(writeFile(t, content)).ReadSecret()
		if secret.Reveal() != want || err != nil {
			t.Errorf("%q is read as %q, error %v", content, secret.Reveal(), err)
		}
	}
}

func TestAFileThatIsNoSecretIsRefused(t *testing.T) {
	for _, content := range []string{"", "\n", "\r\n", strings.Repeat("x", maxSecretBytes+1)} {
		if _, err := FilePath(writeFile(t, content)).ReadSecret(); err == nil || len(err.Error()) > 300 {
			t.Errorf("%d bytes: error %v", len(content), err)
		}
	}
	if _, err := FilePath(t.TempDir()).ReadSecret(); err == nil {
		t.Error("a directory is read as a secret")
	}
}
