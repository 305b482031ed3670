package metrics

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Scope returns 12 hexadecimal digits that are equal for sidecars whose locks
// exclude each other: the same key prefix, database and topology (addresses or
// names of the servers, in an order that the caller fixes). It hides them,
// since the metrics page has no token. Credentials do not belong in it.
func Scope(prefix, database, topology string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", prefix, database, topology))
	return hex.EncodeToString(sum[:6])
}
