package main

import (
	"reflect"
	"slices"
	"strings"
)

// settingNames returns the names of all settings, without the prefix.
func settingNames() []string {
	var names []string
	for field := range reflect.TypeFor[Settings]().Fields() {
		names = append(names, field.Tag.Get("setting"))
	}
	return names
}

// nearMiss is how many single-character edits make an unknown name a
// misspelling of a setting rather than somebody else's variable.
const nearMiss = 2

// names looks for variables with our prefix that are no settings.
func (c *checker) names(environ []string) {
	known := settingNames()
	var unknown []string
	for _, variable := range environ {
		full, _, _ := strings.Cut(variable, "=")
		name, ours := strings.CutPrefix(full, envPrefix+"_")
		if ours && !fromKubernetes(full) && !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		best, distance := "", nearMiss+1
		for _, candidate := range known {
			if d := editDistance(name, candidate); d < distance {
				best, distance = candidate, d
			}
		}
		if best != "" {
			c.mistake(name, "is no setting; did you mean %s_%s?", envPrefix, best)
		} else {
			c.warn(name, "is no setting and has no effect")
		}
	}
}

// fromKubernetes tells whether the variable may be one that Kubernetes sets in
// every pod of a namespace with a Service called locksidecar, or locksidecar-
// and something, such as LOCKSIDECAR_PORT=tcp://10.0.0.1:5625. It also covers
// LOCKSIDECAR_URL, which clients read.
func fromKubernetes(name string) bool {
	return strings.HasSuffix(name, "_URL") || strings.HasSuffix(name, "_PORT") ||
		strings.Contains(name, "_SERVICE_") || strings.Contains(name, "_PORT_")
}

// editDistance returns how many insertions, deletions and replacements of one
// byte turn a into b (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
