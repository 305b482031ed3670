// Command genreadme writes the chart's README.md from README.md.gotmpl and the
// comments in values.yaml: those that begin with two hyphens become the rows
// of a table.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"go.yaml.in/yaml/v3"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: genreadme CHART-FOLDER")
		os.Exit(2)
	}
	page, err := readme(os.Args[1])
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Args[1], "README.md"), page, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// readme returns the page of the chart in the folder.
func readme(folder string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
	if err != nil {
		return nil, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return nil, err
	}
	rows, err := table(document.Content[0], "")
	if err != nil {
		return nil, err
	}
	data, err = os.ReadFile(filepath.Join(folder, "Chart.yaml"))
	if err != nil {
		return nil, err
	}
	var chart struct{ Name, Description, Version, KubeVersion string }
	if err := yaml.Unmarshal(data, &chart); err != nil {
		return nil, err
	}
	page, err := template.New("README.md.gotmpl").ParseFiles(filepath.Join(folder, "README.md.gotmpl"))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = page.Execute(&out, map[string]any{"Chart": chart, "Values": strings.Join(rows, "\n")})
	return out.Bytes(), err
}

// table returns the rows of all values in the mapping; above is the path of
// the mapping itself, with a dot at its end. A value without a comment is an
// error, so that none is forgotten.
func table(mapping *yaml.Node, above string) ([]string, error) {
	var rows []string
	for i := 0; i < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		path := above + key.Value
		meaning, described := describe(key.HeadComment)
		switch {
		case described:
			var plain any
			if err := value.Decode(&plain); err != nil {
				return nil, err
			}
			written, err := json.Marshal(plain)
			if err != nil {
				return nil, err
			}
			rows = append(rows, fmt.Sprintf("| `%s` | `%s` | %s |", path, written, meaning))
		case value.Kind == yaml.MappingNode && len(value.Content) > 0:
			below, err := table(value, path+".")
			if err != nil {
				return nil, err
			}
			rows = append(rows, below...)
		default:
			return nil, fmt.Errorf("line %d: %s has no comment that begins with --", key.Line, path)
		}
	}
	return rows, nil
}

// describe returns what a comment says of its value.
func describe(comment string) (meaning string, described bool) {
	var words []string
	for line := range strings.Lines(comment) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "#"))
		if first, ok := strings.CutPrefix(line, "-- "); ok {
			described, words = true, nil
			line = first
		}
		words = append(words, line)
	}
	return strings.Join(words, " "), described
}
