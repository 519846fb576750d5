package pgproxy_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
)

// TestMain checks for goroutines that Close has left.
func TestClose_EndsConnectionsInAnyState(t *testing.T) {
	t.Parallel()
	p, err := pgproxy.New(pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	var running []<-chan error
	sent := func(sql string) *pgproxy.Conn {
		conn := connect(t, p.DSN(), pgx.QueryExecModeExec)
		seen := p.Next(pgproxy.Seen, pgproxy.Contains(sql))
		running = append(running, inBackground(func() error { _, err := conn.Exec(context.Background(), sql); return err }))
		return waiting.For(t, sql, seen).Conn
	}
	sent("select pg_sleep(60), 'busy'")
	sent("select pg_sleep(60), 'frozen'").Freeze()
	sent("select pg_sleep(60), 'swallowed'").Cut(pgproxy.BlackHole)
	sent("select pg_sleep(60), 'cut'").Cut(pgproxy.Hangup)
	for _, how := range []pgproxy.Action{pgproxy.BlackHole, pgproxy.Hangup, pgproxy.Freeze} {
		p.Refuse(how)
		running = append(running, inBackground(func() error { _, err := pgconn.Connect(context.Background(), p.DSN()); return err }))
	}
	if err := waiting.For(t, "the proxy to close", inBackground(p.Close)); err != nil {
		t.Error(err)
	}
	for _, done := range running {
		if err := waiting.For(t, "the client to notice", done); err == nil {
			t.Error("a statement has succeeded")
		}
	}
}
