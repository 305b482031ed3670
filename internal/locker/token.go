package locker

import (
	"crypto/rand"
	"hash/fnv"
	"log/slog"
	"strings"
)

// Token is the secret that proves ownership of one grant. Every grant has its
// own and it is never used again. It prints as a placeholder, so that it can
// not reach a log, an answer or a test's output by accident.
type Token struct{ secret string }

// tokenScheme marks the values that this product writes into a store.
const tokenScheme = "ls1/"

// NewToken returns a token of 130 random bits that carries the holder's label
// in clear, so that an operator who reads the store sees who holds the lock.
func NewToken(holder string) Token {
	return Token{tokenScheme + holder + "/" + rand.Text()}
}

// TokenFromStore wraps a value that was read back from where a token had been
// written.
func TokenFromStore(value string) Token { return Token{value} }

// Reveal returns the secret, for the backend that writes it.
func (t Token) Reveal() string { return t.secret }

func (t Token) String() string { return "[token]" }

// GoString keeps %#v from printing the secret.
func (t Token) GoString() string { return "locker.Token{[token]}" }

// LogValue keeps slog from printing the secret.
func (t Token) LogValue() slog.Value { return slog.StringValue("[token]") }

// MarshalText keeps encoders from writing the secret.
func (t Token) MarshalText() ([]byte, error) { return []byte("[token]"), nil }

// MarkOf returns the mark of a value found at a lock's key: it tells two values
// apart without being either.
func MarkOf(value string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(value)) // never fails
	return h.Sum64()
}

// Reasons for a tombstone: a value that is nobody's token and keeps a key
// taken until its time is over.
const (
	TombstoneMinHold = "min_hold"
	TombstoneBroken  = "broken"
)

// Tombstone returns the value that keeps a key taken for the given reason.
func Tombstone(holder, reason string) string {
	return tokenScheme + holder + "/-" + reason
}

// ReadValue tells what can be said in public of a value found at a lock's
// key: the holder's label, and the reason if it is a tombstone. ours is false
// for values that this product did not write; nothing is said of those.
func ReadValue(value string) (holder, tombstone string, ours bool) {
	rest, ok := strings.CutPrefix(value, tokenScheme)
	if !ok {
		return "", "", false
	}
	cut := strings.LastIndexByte(rest, '/')
	if cut < 0 {
		return "", "", false
	}
	holder, random := rest[:cut], rest[cut+1:]
	if reason, ok := strings.CutPrefix(random, "-"); ok {
		return holder, reason, true
	}
	return holder, "", true
}
