package promises_test

import (
	"context"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/purge"
)

// Several processes make calls and purge, and share server connections behind PgBouncer.
func TestPurgeWorksBehindPgBouncerInTransactionMode(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dsn := pgtest.PgBouncer(t, pgtest.DSN(t))
	for _, mode := range pgtest.ModesBehindPgBouncer(t) {
		l := ledgerOn(t, pgtest.Open(t, dsn, withMode(mode)))
		l.charged(ctx, "expired "+mode.String())
		if _, err := l.pool.Exec(ctx, "update idem.records set expires_at = now() - '2 hours'::interval"); err != nil {
			t.Fatal(err)
		}
		l.charged(ctx, "live "+mode.String())
		for range 2 {
			if _, err := purge.Once(ctx, l.pool, purge.Options{MaxLag: -1, MaxDead: -1}); err != nil {
				t.Fatalf("%v: %v", mode, err)
			}
		}
		if e, v := l.records("expired "+mode.String()), l.records("live "+mode.String()); e != 0 || v != 1 {
			t.Errorf("%v: %d expired and %d live records", mode, e, v)
		}
		var lock string
		if err := l.pool.QueryRow(ctx, "show lock_timeout").Scan(&lock); err != nil || lock != "0" {
			t.Errorf("%v: a connection of the pooler is left with lock_timeout %s, %v", mode, lock, err)
		}
	}
}

// A purge keeps an expired record for another hour. A call whose COMMIT had no answer can then
// still read the record, although it has expired.
func TestCommitWithoutAnswerIsResolvedThoughItsRecordHasExpiredAndAPurgeGoesOn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p := newProxied(t)
	l := p.ledger
	pool := pgtest.Open(t, p.proxy.DSN())
	trap := p.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.BlackHole)
	done := make(chan error, 1)
	go func() {
		_, err := idemDo(ctx, pool, scope, "k", hashA, l.charge("k"), idem.WithTTL(time.Millisecond))
		done <- err
	}()
	event := await(t, "the COMMIT", trap.Fired())
	for l.count("select count(*) from idem.records where expires_at < clock_timestamp()") == 0 {
	}
	if rep, err := purge.Once(ctx, l.pool, purge.Options{MaxLag: -1, MaxDead: -1}); err != nil || rep.Kept != 1 {
		t.Errorf("%v, %v", rep, err)
	}
	event.Conn.Cut(pgproxy.Reset)
	if err := await(t, "the call", done); err != nil {
		t.Error(err)
	}
	if n := l.entries("k"); n != 1 {
		t.Errorf("%d effects", n)
	}
}
