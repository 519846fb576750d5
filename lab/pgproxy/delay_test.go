package pgproxy_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/lab/pgproxy"
)

// roundTrip returns the first of many round trips that takes less than limit, or else the fastest.
// That measures the latency without the noise of a busy machine.
func roundTrip(t testing.TB, conn *pgx.Conn, limit time.Duration) time.Duration {
	t.Helper()
	fastest := time.Hour
	for deadline := time.Now().Add(patience); fastest >= limit && time.Now().Before(deadline); {
		begin := time.Now()
		if err := conn.Ping(within(t)); err != nil {
			t.Fatal(err)
		}
		fastest = min(fastest, time.Since(begin))
	}
	return fastest
}

func TestRoundTripTakesTheLatencyOfBothDirections(t *testing.T) {
	t.Parallel()
	p := start(t)
	conn := connect(t, p.DSN(), pgx.QueryExecModeExec)
	for _, step := range []struct {
		name string
		set  func()
		want time.Duration
	}{
		{"none", func() {}, 0},
		{"both", func() { p.SetLatency(30 * time.Millisecond) }, 60 * time.Millisecond},
		{"shorter to client", func() { p.SetLatency(10*time.Millisecond, pgproxy.ToClient) }, 40 * time.Millisecond},
		{"shorter to server", func() { p.SetLatency(0, pgproxy.ToServer) }, 10 * time.Millisecond},
		{"none again", func() { p.SetLatency(0) }, 0},
	} {
		step.set()
		//.
		const early, late = time.Millisecond / 4, 9 * time.Millisecond
		if got := roundTrip(t, conn, step.want+late); got < step.want-early || got >= step.want+late {
			t.Errorf("%s: the fastest round trip took %v, want %v", step.name, got, step.want)
		}
	}
}

// Bytes in flight must not wait for each other: many concurrent requests take one round trip
// together.
func TestLatencyDoesNotSerialise(t *testing.T) {
	t.Parallel()
	p := start(t)
	conn := connect(t, p.DSN(), pgx.QueryExecModeExec)
	const requests, oneWay = 100, 50 * time.Millisecond
	p.SetLatency(oneWay)
	const together, serialised = 2 * oneWay, requests / 2 * oneWay // or more
	fastest := time.Hour
	for deadline := time.Now().Add(patience); fastest > serialised && time.Now().Before(deadline); { // a busy machine may need several attempts
		begin := time.Now()
		pipelined(t, conn, func(pipeline *pgconn.Pipeline) {
			for range requests {
				query(pipeline, "select 1")
				if err := pipeline.Sync(); err != nil {
					t.Fatal(err)
				}
			}
			awaitResults(t, pipeline, 2*requests)
		})
		fastest = min(fastest, time.Since(begin))
	}
	if fastest < together-time.Millisecond || fastest > serialised {
		t.Errorf("%d requests in flight took %v, want about %v", requests, fastest, together)
	}
}

func TestCloseDoesNotWaitForTheLatency(t *testing.T) {
	t.Parallel()
	p, err := pgproxy.New(database(t))
	if err != nil {
		t.Fatal(err)
	}
	conn := connect(t, p.DSN(), pgx.QueryExecModeExec)
	p.SetLatency(time.Hour)
	seen := p.Next(pgproxy.Seen, nil)
	pinged := inBackground(func() error { return conn.Ping(within(t)) })
	receive(t, seen, "the ping")
	if err := receive(t, inBackground(p.Close), "the proxy to close"); err != nil {
		t.Error(err)
	}
	if err := receive(t, pinged, "the ping to fail"); !isLost(err) {
		t.Errorf("got %v", err)
	}
}
