package redis

import (
	"crypto/sha1" // Redis names scripts by their SHA-1; nothing rests on its strength
	_ "embed"
	"encoding/hex"
)

// Every script begins its reply with the id of the call, which it got as its
// first argument, and with its server's clock in µs; see [pipeline].
var (
	//go:embed scripts/acquire.lua
	acquireSource string
	//go:embed scripts/renew.lua
	renewSource string
	//go:embed scripts/release.lua
	releaseSource string
	//go:embed scripts/inspect.lua
	inspectSource string
	//go:embed scripts/annotate.lua
	annotateSource string

	acquireScript  = newScript(acquireSource)
	renewScript    = newScript(renewSource)
	releaseScript  = newScript(releaseSource)
	inspectScript  = newScript(inspectSource)
	annotateScript = newScript(annotateSource)
)

// script is a Lua script and the name by which a server that has seen it
// before runs it.
type script struct {
	source string
	sha    string
}

func newScript(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source: source, sha: hex.EncodeToString(sum[:])}
}
