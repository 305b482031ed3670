package locker_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/locksidecar/locksidecar/internal/locker"
)

func TestATokenNeverPrints(t *testing.T) {
	token := locker.NewToken("ns/pod")
	secret := token.Reveal()
	random := secret[strings.LastIndexByte(secret, '/')+1:]
	type wrapper struct{ Token locker.Token }
	wrapped := []any{
		token, &token, wrapper{token}, &wrapper{token}, []locker.Token{token}, map[string]locker.Token{"k": token},
		map[locker.Token]bool{token: true}, locker.Claim{Key: "k", Token: token}, locker.Renewal{Token: token},
		[]locker.Surrender{{Token: token}}, fmt.Errorf("wrapped: %w", errors.New(token.String())),
	}
	printed := make(map[string]string)
	for i, v := range wrapped {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
			printed[fmt.Sprintf("%s of wrapping %d", verb, i)] = fmt.Sprintf(verb, v)
		}
		if b, err := json.Marshal(v); err == nil {
			printed[fmt.Sprintf("json of wrapping %d", i)] = string(b)
		}
		if b, err := xml.Marshal(v); err == nil {
			printed[fmt.Sprintf("xml of wrapping %d", i)] = string(b)
		}
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Info("text", "value", v)
		slog.New(slog.NewJSONHandler(&log, nil)).Info("json", "value", v)
		printed[fmt.Sprintf("slog of wrapping %d", i)] = log.String()
	}
	hex := fmt.Sprintf("%x", random)
	for how, s := range printed {
		if strings.Contains(s, random) || strings.Contains(strings.ToLower(s), hex) {
			t.Errorf("%s shows the secret", how)
		}
	}
	if len(printed) < 80 {
		t.Errorf("only %d ways of printing were tried", len(printed))
	}
}

func TestTokensAreNeverTheSameAndShowTheirHolder(t *testing.T) {
	seen := make(map[locker.Token]bool)
	for range 1000 {
		token := locker.NewToken("ns/pod")
		if seen[token] {
			t.Fatal("the same token twice")
		}
		seen[token] = true
		secret := token.Reveal()
		random, ok := strings.CutPrefix(secret, "ls1/ns/pod/")
		// Base 32 has 5 bits a character.
		if !ok || len(random)*5 < 128 {
			t.Fatalf("a token of %d bytes in another shape", len(secret))
		}
		if locker.TokenFromStore(secret) != token {
			t.Fatal("a token that was read back is another")
		}
	}
}

func TestReadValueTellsTheHolderOfOurOwnValuesOnly(t *testing.T) {
	for value, want := range map[string]struct {
		holder, tombstone string
		ours              bool
	}{
		locker.NewToken("ns/pod").Reveal():                  {"ns/pod", "", true},
		locker.NewToken("").Reveal():                        {"", "", true},
		locker.NewToken("a/b/c").Reveal():                   {"a/b/c", "", true},
		locker.Tombstone("ns/pod", locker.TombstoneMinHold): {"ns/pod", "min_hold", true},
		locker.Tombstone("", locker.TombstoneBroken):        {"", "broken", true},
		locker.Tombstone("ns/pod/-broken", "min_hold"):      {"ns/pod/-broken", "min_hold", true},
		"ls1/pod/":                     {"pod", "", true},
		"ls1/":                         {},
		"ls1/pod":                      {},
		"":                             {},
		"LS1/pod/x":                    {},
		"ls2/pod/x":                    {},
		" ls1/pod/x":                   {},
		"0c5b8ba0-uuid-of-another-lib": {},
		"\x00\xff":                     {},
	} {
		holder, tombstone, ours := locker.ReadValue(value)
		if holder != want.holder || tombstone != want.tombstone || ours != want.ours {
			t.Errorf("ReadValue(%q) = %q, %q, %v", value, holder, tombstone, ours)
		}
	}
}

func TestATombstoneIsNobodysToken(t *testing.T) {
	// Random parts are letters and digits, so none begins as a reason does.
	for range 1000 {
		if _, tombstone, _ := locker.ReadValue(locker.NewToken("pod").Reveal()); tombstone != "" {
			t.Fatalf("a token reads as a tombstone for %q", tombstone)
		}
	}
}
