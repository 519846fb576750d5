package pgtest

import "testing"

func TestThreeSamplesTakeEachPoint(t *testing.T) {
	t.Parallel()
	for n := range 12 {
		for point := range 30 {
			one, next, last := sampled(n, point, true), sampled(n+2, point, false), sampled(n+4, point, false)
			if !one && !next && !last {
				t.Errorf("point %d is taken by none of %d, %d and %d", point, n, n+2, n+4)
			}
			if one && (next || last) || next && last {
				t.Errorf("point %d is taken twice by %d, %d and %d", point, n, n+2, n+4)
			}
			if one && !sampled(n, point, false) {
				t.Errorf("point %d is taken by %d with the race detector alone", point, n)
			}
		}
	}
}

func TestSampleIsANumberOrAll(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		said  string
		short bool
		n     int
		all   bool
	}{{"", false, 0, true}, {"", true, 0, false}, {"0", false, 0, false}, {"3", true, 3, false}} {
		if n, all := sample(row.said, row.short); n != row.n || all != row.all {
			t.Errorf("%+v: %d, %v", row, n, all)
		}
	}
}
