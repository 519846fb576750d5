package pgproxy_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/waiting"
)

// roundTrip returns the first of many round trips that takes less than limit, or else the fastest.
// That measures the latency without the noise of a busy machine.
func roundTrip(t testing.TB, conn *pgx.Conn, limit time.Duration) time.Duration {
	t.Helper()
	fastest := time.Hour
	for deadline := time.Now().Add(waiting.Limit); fastest >= limit && time.Now().Before(deadline); {
		begin := time.Now()
		if err := conn.Ping(within(t)); err != nil {
			t.Fatal(err)
		}
		fastest = min(fastest, time.Since(begin))
	}
	return fastest
}

func TestSetLatency_AddsTwiceTheLatencyToARoundTrip(t *testing.T) {
	t.Parallel()
	p := start(t)
	conn := connect(t, p.DSN(), pgx.QueryExecModeExec)
	for _, latency := range []time.Duration{0, 30 * time.Millisecond, 10 * time.Millisecond, 0} {
		p.SetLatency(latency)
		const early, late = time.Millisecond / 4, 9 * time.Millisecond
		if got := roundTrip(t, conn, 2*latency+late); got < 2*latency-early || got >= 2*latency+late {
			t.Errorf("with a latency of %v the fastest round trip took %v", latency, got)
		}
	}
}
