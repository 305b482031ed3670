package figures_test

import (
	"strings"
	"testing"

	"github.com/locksidecar/locksidecar/e2e/figures"
)

func TestWrite(t *testing.T) {
	var out strings.Builder
	err := figures.Figures{
		Kubernetes: "v1.37.2", Nodes: 3, CPUs: 2,
		Endings: []figures.Ending{
			{How: "pod deleted", Lock: "plain", FreeMS: 30.2},
			{How: "node lost", Lock: "bound", FreeMS: 4000},
			{How: "pod deleted", Lock: "plain", FreeMS: 12.9},
			{How: "pod deleted", Lock: "bound", FreeMS: 5},
			{How: "sidecar crashes", Lock: "plain", Kept: true},
			{How: "classic sidecar", Lock: "plain", FreeMS: -2900, OverlapMS: 2900.4},
		},
		Idle:  &figures.Idle{RSSKiB: 12 * 1024, MilliCPU: 1.26, OverSecond: 30},
		Start: &figures.Start{With: []float64{900, 1100, 1000}, Without: []float64{500, 300, 400}},
	}.Write(&out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Kubernetes v1.37.2, 3 node(s) on one machine of\n2 CPUs",
		"\n| pod deleted | plain | 13 to 30 | none | 2 |\n| node lost | bound | 4000 | none | 1 |\n| pod deleted | bound | 5 | none | 1 |\n",
		"| sidecar crashes | plain | kept by its holder | none | 1 |\n",
		"| classic sidecar | plain | -2900 | **2900 ms** | 1 |\n",
		"12.0 MiB of memory (RSS) and 1.3 thousandths of a core, over 30 s",
		"600 ms later than one without: 1000 ms instead of 400 ms",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page has no %q:\n%s", want, out.String())
		}
	}
}
