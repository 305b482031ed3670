package faultproxy

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
)

// Command is a command as it arrived from a client.
type Command struct {
	N    int      // commands before it, on all connections
	Conn int      // number of its connection, from 0
	Name string   // in upper case
	Args []string // what follows the name

	// Script tells the scripts of EVAL and EVALSHA apart: the first line of
	// the script's text or, if the text was never seen, its SHA in lower case.
	// It is empty for other commands.
	Script string
}

// Mentions tells whether any argument contains text, such as a key.
func (c Command) Mentions(text string) bool {
	for _, arg := range c.Args {
		if strings.Contains(arg, text) {
			return true
		}
	}
	return false
}

// subscribes tells whether the command is answered by messages instead of one
// reply.
func (c Command) subscribes() bool { return strings.HasSuffix(c.Name, "SUBSCRIBE") }

// scriptLocked returns c.Script, and learns the text of a script.
func (p *Proxy) scriptLocked(c Command) string {
	if len(c.Args) == 0 {
		return ""
	}
	switch c.Name {
	case "EVAL", "EVAL_RO":
		p.scripts[shaOf(c.Args[0])] = firstLine(c.Args[0])
		return firstLine(c.Args[0])
	case "EVALSHA", "EVALSHA_RO":
		sha := strings.ToLower(c.Args[0])
		if line, ok := p.scripts[sha]; ok {
			return line
		}
		return sha
	case "SCRIPT":
		if len(c.Args) == 2 && strings.EqualFold(c.Args[0], "LOAD") {
			p.scripts[shaOf(c.Args[1])] = firstLine(c.Args[1])
		}
	}
	return ""
}

// shaOf returns the name that Redis gives a script.
func shaOf(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimSpace(line)
}
