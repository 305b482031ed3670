package main

import "math"

// series is what was measured: by subject, one value a round.
type series map[string][]float64

func (s series) add(subject string, value float64) { s[subject] = append(s[subject], value) }

// ratio compares two subjects round by round. It is rounded as the table shows
// it, so that a verdict on a goal can be checked by the eye.
func (s series) ratio(subject, with string) float64 {
	return math.Round(100*medianRatio(s[subject], s[with])) / 100
}

// rows makes a row of each subject's median.
func (s series) rows(what string, subjects []string, format func(float64) string) []row {
	return s.rowsAgainst(nameBareHandler, what, subjects, format)
}

// rowsAgainst is rows with another subject as the bare handler.
func (s series) rowsAgainst(bare, what string, subjects []string, format func(float64) string) []row {
	rows := make([]row, 0, len(subjects))
	for _, name := range subjects {
		rows = append(rows, row{
			What:    what,
			Subject: name,
			Result:  format(median(s[name])),
			VsBare:  ratio(s.ratio(name, bare)),
			VsRaw:   ratio(s.ratio(name, nameRaw)),
		})
	}
	return rows
}

func (r row) withGoal(goal string, met bool) row {
	r.Goal, r.Missed = goal, !met
	return r
}
