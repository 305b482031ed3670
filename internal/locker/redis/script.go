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
// Some need libraries. Redis has none that would do, so these are put before the
// script, each once and after those that it needs itself.
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

// newScript joins the named files, libraries first. What comes of them begins
// with the last one's first line, by which people and tests know a script.
func newScript(names ...string) *script {
	var all strings.Builder
	main := read(names[len(names)-1])
	first, _, _ := strings.Cut(main, "\n")
	all.WriteString(first + "\n")
	for _, library := range names[:len(names)-1] {
		all.WriteString(read(library))
	}
	all.WriteString(main)
	source := all.String()
	sum := sha1.Sum([]byte(source))
	return &script{source: source, sha: hex.EncodeToString(sum[:])}
}

func read(name string) string {
	text, err := sources.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err) // it was not embedded
	}
	return string(text)
}

// Scripts returns the scripts by name, as they are sent, for those who measure
// what they cost, or watch them go by. What they take and return is told in
// their files.
func Scripts() map[string]string {
	return map[string]string{
		"acquire":  acquireScript.source,
		"renew":    renewScript.source,
		"release":  releaseScript.source,
		"inspect":  inspectScript.source,
		"annotate": annotateScript.source,
		"leave":    leaveScript.source,
		"handover": handOverScript.source,
	}
}
