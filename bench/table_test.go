package main

import (
	"strings"
	"testing"
	"time"
)

func TestTheTableIsMarkdownWithAlignedColumns(t *testing.T) {
	s := series{}
	for _, v := range []float64{1000, 3000, 2000} {
		s.add(nameSidecar, v)
		s.add(nameBareHandler, v/2)
	}
	rows := s.rows("cycle", []string{nameSidecar, nameBareHandler}, func(v float64) string { return micros(time.Duration(v)) })
	rows[0] = rows[0].withGoal("≤ 1.15", s.ratio(nameSidecar, nameBareHandler) <= 1.15)
	rows[1] = rows[1].withGoal("none", true)

	var got strings.Builder
	if err := writeTable(&got, rows); err != nil {
		t.Fatal(err)
	}
	want := `
| what  | subject      | result | × bare handler | × raw go-redis | goal   |        |
| ----- | ------------ | ------ | -------------- | -------------- | ------ | ------ |
| cycle | locksidecar  | 2 µs   | 2.00           |                | ≤ 1.15 | missed |
|       | bare handler | 1 µs   | 1.00           |                | none   | met    |
`
	if "\n"+got.String() != want {
		t.Errorf("got\n%s\nwant%s", got.String(), want)
	}
}

func TestSectionsAreChosenByName(t *testing.T) {
	all, err := chooseSections("")
	if err != nil || len(all) != len(sections) {
		t.Errorf("without a choice: %d sections, %v", len(all), err)
	}
	two, err := chooseSections("idle,latency")
	if err != nil || len(two) != 2 || two[0].name != "idle" || two[1].name != "latency" {
		t.Errorf("idle,latency: %v, %v", two, err)
	}
	if _, err := chooseSections("latency,nonsense"); err == nil || !strings.Contains(err.Error(), "throughput") {
		t.Errorf("an unknown section: %v, which does not tell the known ones", err)
	}
}
