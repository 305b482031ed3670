package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestCPUTimeIsUserPlusSystemWhateverTheCommandIsCalled(t *testing.T) {
	const stat = "4242 (a) R (b) 7) S 1 4242 4242 0 -1 4194560 900 0 3 0 123 45 6 7 20 0 9 0 100 1000 200 18446744073709551615\n"
	got, err := parseCPUTime(stat)
	if err != nil {
		t.Fatal(err)
	}
	if want := 1680 * time.Millisecond; got != want {
		t.Errorf("%v, want %v", got, want)
	}
	for _, bad := range []string{"", "1 (x) S 1 2", "1 (x) S 1 2 3 4 5 6 7 8 9 10 a b 13"} {
		if got, err := parseCPUTime(bad); err == nil {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}

func TestMemoryIsReadInBytes(t *testing.T) {
	const rollup = `00400000-7fff Rss: is not here
Rss:               12000 kB
Pss:                9000 kB
Pss_Dirty:          4000 kB
`
	got, err := parseMemory(rollup)
	if err != nil {
		t.Fatal(err)
	}
	if want := (memory{rss: 12000 << 10, pss: 9000 << 10}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if _, err := parseMemory("Rss: 1 kB\n"); err == nil || !strings.Contains(err.Error(), "Pss") {
		t.Errorf("a missing field: %v", err)
	}
}

func TestThisProcessCanBeMeasured(t *testing.T) {
	for begin := time.Now(); ; {
		cpu, err := cpuTime(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if cpu > 0 {
			break
		}
		if time.Since(begin) > 10*time.Second {
			t.Fatal("ten busy seconds used no CPU")
		}
	}
	m, err := memoryOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if m.rss < 1<<20 || m.pss > m.rss {
		t.Errorf("implausible memory: %+v", m)
	}
}
