package lockertest

import (
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// told is one request in a history that is made by hand, and its answer. Times are
// steps.
type told struct {
	from, until locker.Instant
	outcome     Outcome
	fence       locker.Fence // of one that asks
	of          int          // the request of which the grant is given back, counted from 1; 0 for one that asks
}

func TestAHistoryIsJudgedAsOneLockWouldAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		history []told
		want    bool
	}{
		"nothing":                              {nil, true},
		"one after the other":                  {[]told{{1, 2, Done, 1, 0}, {3, 4, Done, 0, 1}, {5, 6, Done, 2, 0}}, true},
		"two at a time":                        {[]told{{1, 2, Done, 1, 0}, {3, 4, Done, 2, 0}, {5, 6, Done, 0, 1}}, false},
		"a grant during the release":           {[]told{{1, 2, Done, 1, 0}, {3, 6, Done, 0, 1}, {4, 5, Done, 2, 0}}, true},
		"a token that falls":                   {[]told{{1, 2, Done, 2, 0}, {3, 4, Done, 0, 1}, {5, 6, Done, 1, 0}}, false},
		"a token used twice":                   {[]told{{1, 2, Done, 2, 0}, {3, 4, Done, 0, 1}, {5, 6, Done, 2, 0}}, false},
		"refused while another has it":         {[]told{{1, 2, Done, 1, 0}, {3, 4, Refused, 0, 0}, {5, 6, Done, 0, 1}}, true},
		"refused though nobody has it":         {[]told{{1, 2, Done, 1, 0}, {3, 4, Done, 0, 1}, {5, 6, Refused, 0, 0}}, false},
		"refused while another asks in vain":   {[]told{{1, 4, NothingDone, 0, 0}, {2, 3, Refused, 0, 0}}, true},
		"refused after another asked in vain":  {[]told{{1, 2, NothingDone, 0, 0}, {3, 4, Refused, 0, 0}}, false},
		"refused after what is not known":      {[]told{{1, 2, Unknown, 0, 0}, {3, 4, Refused, 0, 0}}, true},
		"granted after what is not known":      {[]told{{1, 2, Unknown, 0, 0}, {3, 4, Done, 1, 0}}, true},
		"refused after a release not known":    {[]told{{1, 2, Done, 1, 0}, {3, 4, Unknown, 0, 1}, {5, 6, Refused, 0, 0}}, true},
		"granted after a release not known":    {[]told{{1, 2, Done, 1, 0}, {3, 4, Unknown, 0, 1}, {5, 6, Done, 2, 0}}, true},
		"granted after a release not done":     {[]told{{1, 2, Done, 1, 0}, {3, 4, NothingDone, 0, 1}, {5, 6, Done, 2, 0}}, false},
		"given back twice":                     {[]told{{1, 2, Done, 1, 0}, {3, 4, Done, 0, 1}, {5, 6, Done, 0, 1}}, false},
		"not held any more, though it is held": {[]told{{1, 2, Done, 1, 0}, {3, 4, Refused, 0, 1}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var h History
			for _, e := range tt.history {
				if e.of == 0 {
					_, answered := h.Ask(e.from)
					answered(e.until, e.outcome, e.fence)
				} else {
					h.GiveBack(e.of, e.from)(e.until, e.outcome)
				}
			}
			if yes, decided := h.Linearizable(time.Minute); !decided || yes != tt.want {
				t.Errorf("it is %v, decided %v", yes, decided)
			}
		})
	}
}
