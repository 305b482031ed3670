package openapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// fromJSON returns what a schema is compared with.
func fromJSON(t *testing.T, text string) any {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return value
}

// asJSON turns a value into what it would be, had it been read from JSON.
func asJSON(t *testing.T, value any) any {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return fromJSON(t, string(text))
}

// readEvents reads a stream of server-sent events into what the schema Events
// describes. Comments are passed over; anything unknown is an error.
func readEvents(text string) ([]any, error) {
	events := []any{}
	for block := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		event := make(map[string]any)
		for line := range strings.SplitSeq(block, "\n") {
			field, value, _ := strings.Cut(line, ": ")
			switch field {
			case "":
			case "event":
				event["event"] = value
			case "data":
				var data any
				if err := json.Unmarshal([]byte(value), &data); err != nil {
					return nil, fmt.Errorf("%w: %q", err, value)
				}
				event["data"] = data
			default:
				return nil, fmt.Errorf("unknown line %q", line)
			}
		}
		if len(event) > 0 {
			events = append(events, event)
		}
	}
	return events, nil
}

// shellNames returns the names of the lines that the object is in plain text.
func shellNames(value any, prefix string) []string {
	object, ok := value.(map[string]any)
	if !ok {
		return []string{prefix}
	}
	if prefix != "" {
		prefix += "_"
	}
	var names []string
	for name, member := range object {
		names = append(names, shellNames(member, prefix+name)...)
	}
	return names
}

// lineNames returns the names of name=value lines. Notes have no line breaks.
func lineNames(text string) []string {
	var names []string
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, "=")
		names = append(names, name)
	}
	return names
}
