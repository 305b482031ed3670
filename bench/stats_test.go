package main

import (
	"slices"
	"testing"
)

func TestPercentileIsTheNearestRank(t *testing.T) {
	hundred := make([]int64, 100)
	for i := range hundred {
		hundred[i] = int64(100 - i) // 100 … 1
	}
	for _, c := range []struct {
		values []int64
		p      float64
		want   int64
	}{
		{nil, 50, 0},
		{[]int64{7}, 50, 7},
		{[]int64{7}, 99, 7},
		{[]int64{3, 1, 2}, 50, 2},
		{[]int64{4, 3, 2, 1}, 50, 2},
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 100, 100},
		{hundred, 0, 1},
	} {
		before := slices.Clone(c.values)
		if got := percentile(c.values, c.p); got != c.want {
			t.Errorf("percentile(%v, %v) = %d, want %d", c.values, c.p, got, c.want)
		}
		if !slices.Equal(before, c.values) {
			t.Error("percentile changed the order of the values")
		}
	}
}

func TestMedianOfAnEvenNumberIsTheMeanOfTheMiddle(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0}, {[]float64{5}, 5}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5},
	} {
		if got := median(c.values); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.values, got, c.want)
		}
	}
}

func TestRatiosAreFormedWithinARound(t *testing.T) {
	// The second round was disturbed for both, the third for one of them.
	ours, theirs := []float64{2, 20, 2}, []float64{1, 10, 10}
	if got := medianRatio(ours, theirs); got != 2 {
		t.Errorf("ratio %v, want 2", got)
	}
	if got := medianRatio(ours, nil); got != 0 {
		t.Errorf("ratio with nothing: %v, want 0", got)
	}
	if got := medianRatio([]float64{1, 3}, []float64{0, 1}); got != 3 {
		t.Errorf("a round without a value was counted: %v, want 3", got)
	}
}
