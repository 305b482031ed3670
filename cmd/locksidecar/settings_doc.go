package main

import (
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

const docHead = `<!-- Generated from cmd/locksidecar/settings.go by make generate. Do not edit. -->

# Settings

locksidecar is configured by environment variables alone. They are read once, at start. If anything is wrong with
them, one message names every mistake and the process ends with exit code 2.

- A duration is a number with its unit: ` + "`1500ms`, `30s`, `2h`" + `. A bare number is refused.
- A list is separated by commas; white space around its elements is ignored.
- A variable that is set to nothing is a mistake, so that an empty template value is not read as a default. Only
  ` + "`LOCKSIDECAR_KEY_PREFIX`" + ` may be empty.
- An unknown name that differs from a setting in one or two characters is a mistake; any other unknown
  ` + "`LOCKSIDECAR_`" + ` name is a warning in the log. Names that end in ` + "`_URL` or `_PORT`, or contain `_SERVICE_` or `_PORT_`" + `,
  are ignored: Kubernetes sets such variables in every pod of a namespace that has a Service called locksidecar.
- The content of a ` + "`_FILE`" + ` is never logged, and is read again when it is needed, so that a mounted Secret can be rotated
  without a restart. At start the file must be there.

`

// WriteSettingsDoc writes docs/config.md.
func WriteSettingsDoc(w io.Writer) error {
	var b strings.Builder
	b.WriteString(docHead)
	b.WriteString("| name | type | default | meaning |\n|---|---|---|---|\n")
	for field := range reflect.TypeFor[Settings]().Fields() {
		fmt.Fprintf(&b, "| `%s_%s` | %s | %s | %s |\n", envPrefix, field.Tag.Get("setting"),
			typeInWords(field.Type), defaultInWords(field.Tag), cell(field.Tag.Get("desc")))
	}
	b.WriteString("\n## Rules between settings\n\nNames are without their prefix here.\n\n")
	for _, r := range relations {
		fmt.Fprintf(&b, "- %s\n", r.rule)
	}
	for _, rule := range redisRules {
		fmt.Fprintf(&b, "- %s\n", rule)
	}
	b.WriteString("\n## `locksidecar dev`\n\nReads the same settings and always uses the memory backend. ")
	b.WriteString("`REDIS_` settings have no effect there and are a warning. Other defaults:\n\n")
	for field := range reflect.TypeFor[Settings]().Fields() {
		if text, ok := devDefaults[field.Tag.Get("setting")]; ok {
			fmt.Fprintf(&b, "- `%s_%s`: `%s`\n", envPrefix, field.Tag.Get("setting"), text)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func typeInWords(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return "duration"
	case reflect.TypeFor[int]():
		return "number"
	case reflect.TypeFor[bool]():
		return "true or false"
	case reflect.TypeFor[string]():
		return "text"
	case reflect.TypeFor[Secret]():
		return "secret"
	case reflect.TypeFor[FilePath](), reflect.TypeFor[DirPath]():
		return "path"
	case reflect.TypeFor[AdminAddr]():
		return "address"
	case reflect.TypeFor[RedisAddrs](), reflect.TypeFor[ListenAddrs]():
		return "list of addresses"
	case reflect.TypeFor[HostList]():
		return "list of hosts"
	case reflect.TypeFor[KeyList]():
		return "list of keys"
	case reflect.TypeFor[RedisMode](), reflect.TypeFor[LogFormat](), reflect.TypeFor[locker.ReleaseMode](), reflect.TypeFor[slog.Level]():
		return "word"
	}
	panic("no word for the type " + t.String())
}

func defaultInWords(tag reflect.StructTag) string {
	if text, ok := tag.Lookup("default"); ok {
		return "`" + text + "`"
	}
	if text := tag.Get("shown"); text != "" {
		return cell(text)
	}
	return "none"
}

// cell keeps text from ending a table's cell.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
