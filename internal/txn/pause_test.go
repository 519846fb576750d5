package txn

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestPausesDoubleUpToTheirLimitAndAreDrawnFromTheUpperHalf(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for range 200 {
		p := Pauses{Current: 2 * time.Millisecond, Limit: 100 * time.Millisecond}
		for _, top := range []time.Duration{2, 4, 8, 16, 32, 64, 100, 100, 100} {
			top *= time.Millisecond
			if pause := p.Next(); pause < top/2 || pause >= top {
				t.Fatalf("%v is not between %v and %v", pause, top/2, top)
			} else if top == 100*time.Millisecond {
				seen[pause] = true
			}
		}
	}
	if len(seen) < 100 {
		t.Errorf("of 600 pauses only %d differ: those who wait together ask together", len(seen))
	}
}

func TestSleepEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if err := Sleep(t.Context(), time.Minute); err != nil || time.Since(begun) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun = time.Now()
		if err := Sleep(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}
