package txn

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestEngineOpen_SkipsAtMostMaxConnsDeadConnections(t *testing.T) {
	t.Parallel()
	const most = 5
	proxy := pgtest.Proxy(t, pgtest.DSN(t))
	pool := pgtest.Open(t, proxy.DSN(), func(config *pgxpool.Config) {
		config.MaxConns = most
		config.AfterConnect = func(_ context.Context, conn *pgx.Conn) error { markAlive(conn); return nil }
	})
	proxy.ArmEach(pgproxy.Before(pgproxy.Contains("begin")), pgproxy.Reset)
	engine := Engine{Pool: pool, Limits: DefaultLimits}
	if _, err := engine.Open(t.Context()); !Transient(err) {
		t.Errorf("err = %v", err)
	}
	if n := pool.Stat().NewConnsCount(); n != most+1 {
		t.Errorf("%d connections were made", n)
	}
}
