package pgproxy_test

import (
	"context"
	"slices"
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
		// BenchmarkRoundTrip measures the precision of the latency.
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

func TestNothingIsOvertakenWhenTheLatencyShrinks(t *testing.T) {
	t.Parallel()
	server := newSink(t)
	p := startFor(t, server.dsn())
	client := server.connect(t, p)
	p.SetLatency(20 * time.Millisecond)
	var want []byte
	for i := range 200 {
		if i == 100 {
			p.SetLatency(0)
		}
		m := []byte{'d', 0, 0, 0, 5, byte(i)}
		want = append(want, m...)
		if _, err := client.Write(m); err != nil {
			t.Fatal(err)
		}
	}
	client.CloseWrite()
	if got := receive(t, server.received, "the stream"); !slices.Equal(got, want) {
		t.Errorf("received % x, want % x", got, want)
	}
}

func TestEndOfAStreamTakesTheLatencyToo(t *testing.T) {
	t.Parallel()
	server := newSink(t)
	p := startFor(t, server.dsn())
	client := server.connect(t, p)
	const oneWay = 30 * time.Millisecond
	p.SetLatency(oneWay)
	begin := time.Now()
	client.CloseWrite()
	receive(t, server.received, "the end of the stream")
	if took := time.Since(begin); took < oneWay-time.Millisecond {
		t.Errorf("the end of the stream arrived after %v, want %v", took, oneWay)
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

// BenchmarkRoundTrip reports how much longer than two latencies a round trip takes. Compare with
// "direct": a client that is idle as long as a round trip wakes up as slowly as one that waits for
// the network.
func BenchmarkRoundTrip(b *testing.B) {
	b.Run("direct", func(b *testing.B) { roundTrips(b, database(b), 0, 0) })
	b.Run("direct-after-1ms", func(b *testing.B) { roundTrips(b, database(b), 0, time.Millisecond) })
	for _, oneWay := range []time.Duration{0, 100 * time.Microsecond, 500 * time.Microsecond, 5 * time.Millisecond} {
		b.Run("proxy-"+oneWay.String(), func(b *testing.B) {
			p := start(b)
			p.SetLatency(oneWay)
			roundTrips(b, p.DSN(), oneWay, 0)
		})
	}
}

func roundTrips(b *testing.B, dsn string, oneWay, idle time.Duration) {
	conn := connect(b, dsn, pgx.QueryExecModeExec)
	ctx := context.Background()
	excess := make([]time.Duration, 0, b.N)
	for b.Loop() {
		time.Sleep(idle)
		begin := time.Now()
		if err := conn.Ping(ctx); err != nil {
			b.Fatal(err)
		}
		excess = append(excess, time.Since(begin)-2*oneWay)
	}
	slices.Sort(excess)
	for name, q := range map[string]float64{"p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99} {
		at := excess[int(q*float64(len(excess)-1))]
		b.ReportMetric(float64(at.Nanoseconds())/1e3, "µs-"+name)
	}
}
