package arena_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/bench/arena"
	"github.com/idem-go/idem/lab/bench/arena/arenatest"
	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/optional"
)

var server *arena.Server

func TestMain(m *testing.M) { os.Exit(arenatest.Run(m, &server)) }

// fastest is the shortest of some round trips: what remains is the latency, not the noise of a busy machine.
func fastest(t *testing.T, n int, trip func() error) time.Duration {
	t.Helper()
	all := make([]time.Duration, n)
	for i := range all {
		begin := time.Now()
		if err := trip(); err != nil {
			t.Fatal(err)
		}
		all[i] = time.Since(begin)
	}
	return slices.Min(all)
}

func TestLaneIsAsLongAsItsRoundTrip(t *testing.T) {
	t.Parallel()
	const rtt = 5 * time.Millisecond
	booth := arenatest.Booth(t, arenatest.Lane(t, server, rtt, false), contestant.Plain())
	if got := fastest(t, 10, func() error { return booth.Pool.Ping(t.Context()) }); got < rtt-time.Millisecond {
		t.Errorf("Postgres is %v away, want %v", got, rtt)
	}
}

func TestRedisIsAsFarAwayAsPostgres(t *testing.T) {
	t.Parallel()
	const rtt = 5 * time.Millisecond
	lane := arenatest.Lane(t, server, rtt, false)
	booth := arenatest.Booth(t, lane, contestant.RedisEverySecond())
	call := contestant.Call{Key: "0f0e0d0c-0000-4000-a000-000000000000", Business: contestant.OneInsert, Body: []byte("{}")}
	if _, err := booth.Runner.Do(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	lane.Turns()
	const calls = 5
	got := fastest(t, calls, func() error { _, err := booth.Runner.Do(t.Context(), call); return err })
	if roundTrips := lane.Turns(); roundTrips != 2*calls || got < 2*rtt {
		t.Errorf("a replay, which asks twice, takes %v and %d round trips in %d calls", got, roundTrips, calls)
	}
}

func TestLaneCountsRoundTrips(t *testing.T) {
	t.Parallel()
	lane := arenatest.Lane(t, server, 0, true)
	booth := arenatest.Booth(t, lane, contestant.Plain())
	call := contestant.Call{Key: "0f0e0d0c-0000-4000-a000-000000000000", Business: contestant.OneInsert, Body: []byte("{}")}
	for i := range 3 {
		if _, err := booth.Runner.Do(t.Context(), call); err != nil {
			t.Fatal(err)
		}
		if roundTrips := lane.Turns(); i > 0 && roundTrips != 3 { // the first one prepares
			t.Errorf("BEGIN, INSERT and COMMIT took %d round trips", roundTrips)
		}
	}
}

func TestSlowDiskMakesCommitsWaitLonger(t *testing.T) {
	t.Parallel()
	arenatest.Lane(t, server, 0, false) // skips where there is no server
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && len(d) > 1; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const delay = 3 * time.Millisecond
	slow, err := arena.StartServer(t.Context(), dir, arena.Spec{Name: "slow", Flush: delay})
	optional.Require(t, err)
	defer slow.Close()
	if got, err := slow.Flush(t.Context()); err != nil || got < delay {
		t.Errorf("a COMMIT waits %v, %v", got, err)
	}
}

func TestEffectsAreChecked(t *testing.T) {
	t.Parallel()
	whole := arena.Effects{Orders: 5, Distinct: 5, Lines: 10, Ledger: 5, Sold: 5}
	twice := arena.Effects{Orders: 6, Distinct: 5, Lines: 12, Ledger: 6, Sold: 6}
	lineless, unbooked, unsold := whole, whole, whole
	lineless.Lines, unbooked.Ledger, unsold.Sold = 9, 4, 4
	for _, test := range []struct {
		name      string
		effects   arena.Effects
		requests  int
		realistic bool
		repeats   bool
		ok        bool
	}{
		{"all there", whole, 5, true, false, true},
		{"one insert each", arena.Effects{Orders: 5, Distinct: 5}, 5, false, false, true},
		{"nothing done", arena.Effects{}, 5, false, false, false},
		{"one missing", whole, 6, true, false, false},
		{"more than was asked for", whole, 4, true, false, false},
		{"one twice", twice, 5, true, false, false},
		{"one twice, by one who may", twice, 5, true, true, true},
		{"a line missing", lineless, 5, true, false, false},
		{"not in the ledger", unbooked, 5, true, false, false},
		{"not out of the stock", unsold, 5, true, false, false},
	} {
		if err := test.effects.Check(test.requests, test.realistic, test.repeats); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
