package fault

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/lab/pgproxy"
)

func TestCutConnectionIsLost(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	p := proxies(t, c, 1)
	for _, name := range []Name{"cut", "cut-all", "cut-at-byte"} {
		for seed := range uint64(4) { // by reset and hangup, to the server and to the client
			conns := []*pgconn.PgConn{connect(t, p.slots[0].proxy.DSN()), connect(t, p.slots[0].proxy.DSN())}
			errs := make([]error, len(conns))
			whileInjecting(t, Target{c, p}, name, seed, func(int) bool {
				for i, conn := range conns {
					if errs[i] == nil {
						errs[i] = query(t, conn, "select 1")
					}
				}
				return true
			})
			lost := 0
			for i, conn := range conns {
				if errs[i] != nil || query(t, conn, "select 1") != nil {
					lost++
				}
			}
			if want := map[Name]int{"cut": 1, "cut-at-byte": 1, "cut-all": 2}[name]; lost != want {
				t.Errorf("%s, seed %d: %d connections are lost, want %d", name, seed, lost, want)
			}
			p.slots[0].proxy.Cut(pgproxy.Reset)
			eventually(t, "no connection is left", func() bool { return len(p.slots[0].proxy.Conns()) == 0 })
		}
	}
}

func TestDelayMakesEverythingSlowForAWhile(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	p := proxies(t, c, 1)
	conn := connect(t, p.slots[0].proxy.DSN())
	var latency time.Duration
	untilSeen(t, 3, func(uint64) bool { // the same seed each time: with another one the delay may be short, and what else makes a query slow taken for it
		var took []time.Duration
		event := whileInjecting(t, Target{c, p}, "delay", 3, func(int) bool {
			begin := time.Now()
			if err := query(t, conn, "select 1"); err != nil {
				t.Error(err)
			}
			took = append(took, time.Since(begin))
			return true
		})
		var slowest time.Duration // of four in a row the fastest: another reason makes one slow
		for some := range slices.Chunk(took[:len(took)/4*4], 4) {
			slowest = max(slowest, slices.Min(some))
		}
		var err error
		if latency, err = time.ParseDuration(strings.TrimSuffix(event.Detail, " each way")); err != nil {
			t.Error(err)
		}
		t.Logf("%v each way; of four in a row the fastest took up to %v", latency, slowest)
		return slowest >= 2*latency-time.Millisecond && latency >= 2*time.Millisecond
	})
	eventually(t, "it is fast again", func() bool {
		begin := time.Now()
		return query(t, conn, "select 1") == nil && time.Since(begin) < 2*latency
	})
}

// A client of a black hole gets no error and waits. It notices when the connection is reset.
func TestBlackHoleIsSilentUntilItIsClosed(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	p := proxies(t, c, 1)
	untilSeen(t, 2, func(seed uint64) bool {
		conn := connect(t, p.slots[0].proxy.DSN())
		links := p.slots[0].proxy.Conns()
		link := links[len(links)-1]
		var err error
		var silent time.Duration
		event := whileInjecting(t, Target{c, p}, "black-hole", seed, func(int) bool {
			begin := time.Now()
			err = query(t, conn, "select 1")
			silent = time.Since(begin)
			return err == nil
		})
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the client got %v", err)
		}
		select {
		case <-link.Done():
		case <-time.After(patience):
			t.Error("the hole was not closed")
		}
		return err != nil && silent > event.For/2
	})
}

// untilSeen repeats a check with other seeds, because a fault may be over before a busy machine
// looks.
func untilSeen(t *testing.T, seed uint64, try func(seed uint64) bool) {
	t.Helper()
	const tries = 8
	for n := range uint64(tries) {
		if try(seed + 100*n) {
			return
		}
	}
	t.Errorf("seed %d: nobody noticed anything of it, %d times", seed, tries)
}

func TestFrozenConnectionLosesNothing(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	p := proxies(t, c, 1)
	conn := connect(t, p.slots[0].proxy.DSN())
	for seed := range uint64(4) {
		untilSeen(t, seed, func(seed uint64) bool {
			var slowest time.Duration
			event := whileInjecting(t, Target{c, p}, "freeze", seed, func(int) bool {
				begin := time.Now()
				if err := query(t, conn, "insert into done values ('x')"); err != nil {
					t.Error(err)
				}
				slowest = max(slowest, time.Since(begin))
				return true
			})
			return slowest > event.For/2
		})
	}
	if err := query(t, conn, "select 1"); err != nil {
		t.Error(err)
	}
}

func TestRefusedConnectionsAreAdmittedLater(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	p := proxies(t, c, 1)
	before := connect(t, p.slots[0].proxy.DSN())
	for seed := range uint64(5) {
		untilSeen(t, seed, func(seed uint64) bool {
			slow, refused := time.Duration(0), 0
			event := whileInjecting(t, Target{c, p}, "refuse", seed, func(int) bool {
				begin := time.Now()
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				conn, err := pgconn.Connect(ctx, p.slots[0].proxy.DSN())
				if err != nil {
					refused++
				} else {
					conn.Close(ctx)
				}
				slow = max(slow, time.Since(begin))
				if err := query(t, before, "select 1"); err != nil {
					t.Error(err)
				}
				return true
			})
			return refused > 0 || slow > event.For/2
		})
		connect(t, p.slots[0].proxy.DSN())
	}
}
