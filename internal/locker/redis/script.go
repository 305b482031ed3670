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
// script, after those that they need themselves.
var (
	//go:embed scripts
	sources embed.FS

	acquireScript  = newScript("acquire", library("common"), guard, waiting, library("claim"))
	renewScript    = newScript("renew", library("common"))
	releaseScript  = newScript("release", library("common"), freed, library("surrender"))
	inspectScript  = newScript("inspect", library("common"), library("line"))
	annotateScript = newScript("annotate", library("common"))
	breakScript    = newScript("break", library("common"))
	healScript     = newScript("heal", library("common"))
	raiseScript    = newScript("raise", library("common"))
	markScript     = newScript("mark", library("common"), guard)
	doubtScript    = newScript("doubt", library("common"))
	leaveScript    = newScript("leave", library("common"), library("line"), front, library("place"))
	handOverScript = newScript("handover", library("common"), guard, waiting, freed, library("claim"), library("surrender"))

	waiting = function("waiting", library("line"), front, library("place"))
	freed   = function("freed", library("line"), front)
	front   = function("front")
	guard   = function("guard")
)

// script is a Lua script and the name by which a server that has seen it
// before runs it.
type script struct {
	source string
	sha    string
}

// newScript puts libraries before the named file. What comes of it begins with
// the file's first line, by which people and tests know a script.
func newScript(name string, libraries ...string) *script {
	main := library(name)
	first, _, _ := strings.Cut(main, "\n")
	source := first + "\n" + strings.Join(libraries, "") + main
	sum := sha1.Sum([]byte(source))
	return &script{source: source, sha: hex.EncodeToString(sum[:])}
}

// function makes a Lua function of the named file and its libraries, under its
// name. A server makes what is in it only when it is called: not for a lock that
// nobody waits for.
func function(name string, libraries ...string) string {
	return "local function " + name + "(...)\n" + strings.Join(libraries, "") + library(name) + "end\n"
}

// library returns the text of the named file.
func library(name string) string {
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
		"break":    breakScript.source,
		"heal":     healScript.source,
		"raise":    raiseScript.source,
		"mark":     markScript.source,
		"doubt":    doubtScript.source,
		"leave":    leaveScript.source,
		"handover": handOverScript.source,
	}
}
