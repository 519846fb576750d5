package result_test

import (
	"testing"

	"github.com/idem-go/idem/lab/bench/result"
)

func TestNumbersAreGrouped(t *testing.T) {
	t.Parallel()
	for figure, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -5000: "-5,000", 999.6: "1,000"} {
		if got := result.Grouped(figure); got != want {
			t.Errorf("%v: got %s, want %s", figure, got, want)
		}
	}
}
