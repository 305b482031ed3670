package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
)

// Secret is text that prints as a placeholder wherever it is printed.
type Secret struct {
	// A pointer, because package fmt does not call the methods of a value
	// in an unexported field; of a pointer it prints the address.
	text *string
}

const secretPlaceholder = "[secret]"

// NewSecret returns a Secret of text.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal returns the text, or "" of the zero Secret.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Set takes the text over; it is how envconfig fills a Secret in.
func (s *Secret) Set(text string) error {
	if strings.ContainsAny(text, "\r\n") {
		return errors.New("has a line break in it, which no password has (echo adds one, printf does not)")
	}
	*s = NewSecret(text)
	return nil
}

// Format prints the placeholder whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, secretPlaceholder) }

// LogValue keeps slog from printing the text.
func (Secret) LogValue() slog.Value { return slog.StringValue(secretPlaceholder) }

// MarshalText keeps encoders from writing the text.
func (Secret) MarshalText() ([]byte, error) { return []byte(secretPlaceholder), nil }

// maxSecretBytes is more than any password or token has; it keeps a path to
// something endless from filling the memory.
const maxSecretBytes = 64 << 10

// ReadSecret returns what the file holds at this moment, without one line
// break at the end. An empty file is an error, as it would authenticate
// nobody. Errors name the file and hold nothing of its content.
func (p FilePath) ReadSecret() (Secret, error) {
	f, err := os.Open(string(p))
	if err != nil {
		return Secret{}, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxSecretBytes+1))
	if err != nil {
		return Secret{}, err
	}
	if len(content) > maxSecretBytes {
		return Secret{}, fmt.Errorf("%s is longer than %d bytes", p, maxSecretBytes)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if text == "" {
		return Secret{}, fmt.Errorf("%s is empty", p)
	}
	return NewSecret(text), nil
}

// UsernameSource returns what tells the Redis user of a new connection, or nil
// if none is configured.
func (s *Settings) UsernameSource() func() (string, error) {
	return source(s.RedisUsername, s.RedisUsernameFile)
}

// PasswordSource returns what tells the Redis password of a new connection, or
// nil if none is configured.
func (s *Settings) PasswordSource() func() (string, error) {
	return source(s.RedisPassword.Reveal(), s.RedisPasswordFile)
}

// SentinelUsernameSource returns what tells the user at the Sentinels, or nil.
func (s *Settings) SentinelUsernameSource() func() (string, error) {
	return source(s.SentinelUsername, s.SentinelUsernameFile)
}

// SentinelPasswordSource returns what tells the password at the Sentinels, or
// nil.
func (s *Settings) SentinelPasswordSource() func() (string, error) {
	return source(s.SentinelPassword.Reveal(), s.SentinelPasswordFile)
}

// TokenSource returns what tells the token that the lock API demands, or nil
// if it demands none.
func (s *Settings) TokenSource() func() (string, error) {
	return source("", s.APITokenFile)
}

// source reads the file at each call, so that a rotated secret is used without
// a restart.
func source(text string, file FilePath) func() (string, error) {
	switch {
	case file != "":
		return func() (string, error) {
			secret, err := file.ReadSecret()
			return secret.Reveal(), err
		}
	case text != "":
		return func() (string, error) { return text, nil }
	}
	return nil
}
