package main

import (
	"math"
	"slices"
)

// percentile returns the smallest value that at least p percent of the values
// do not exceed (nearest rank), or the zero value if there are none.
func percentile[T int64 | float64](values []T, p float64) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

// median is the mean of the two middle values if their number is even.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// medianRatio is the median over the rounds of a's value by b's in the same
// round: what disturbs the machine in one round disturbs both.
func medianRatio(a, b []float64) float64 {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			ratios = append(ratios, a[i]/b[i])
		}
	}
	return median(ratios)
}
