package record

import (
	"testing"
	"time"

	"github.com/idem-go/idem/stats"
)

func TestFlightFact_WarnsFromAMinuteOn(t *testing.T) {
	t.Parallel()
	for held, want := range map[time.Duration]string{time.Minute - time.Second: "", time.Minute: "warn"} {
		f := stats.InFlight{Transactions: 1, Keys: 1}
		f.Oldest.Value = held
		if got := flightFact(f).Mood; got != want {
			t.Errorf("held for %v: mood %q, want %q", held, got, want)
		}
	}
}
