package redis

import (
	"crypto/sha1" // Redis names scripts by their SHA-1; nothing rests on its strength
	"embed"
	"encoding/hex"
	"strings"
)

// Every script begins its reply with the id of the call, which it got as its
// first argument, and with its server's clock in µs; see [pipeline].
//
// Some share libraries. Redis knows of none that would do, so those that a
// script needs are put before it, each once and after what it needs itself.
var (
	//go:embed scripts
	sources embed.FS

	acquireScript  = newScript("line", "claim", "acquire")
	renewScript    = newScript("renew")
	releaseScript  = newScript("line", "surrender", "release")
	inspectScript  = newScript("line", "inspect")
	annotateScript = newScript("annotate")
	leaveScript    = newScript("line", "leave")
	handOverScript = newScript("line", "claim", "surrender", "handover")
)

// script is a Lua script and the name by which a server that has seen it
// before runs it.
type script struct {
	source string
	sha    string
}

// newScript joins the named files.
func newScript(names ...string) *script {
	var all strings.Builder
	for _, name := range names {
		part, err := sources.ReadFile("scripts/" + name + ".lua")
		if err != nil {
			panic(err) // it was not embedded
		}
		all.Write(part)
	}
	source := all.String()
	sum := sha1.Sum([]byte(source))
	return &script{source: source, sha: hex.EncodeToString(sum[:])}
}

// AcquireSource and ReleaseSource return the scripts as they are sent, for
// measuring what the same scripts cost without a sidecar. Their arguments are
// listed in scripts/acquire.lua and scripts/release.lua.
func AcquireSource() string { return acquireScript.source }

// ReleaseSource is described at AcquireSource.
func ReleaseSource() string { return releaseScript.source }
