package promises_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

const (
	sleep      = "select pg_sleep(3600)"
	isAsleep   = "select count(*) = 1 from pg_stat_activity where datname = current_database() and state = 'active' and query like 'select pg_sleep%'"
	isAwakened = "select count(*) = 0 from pg_stat_activity where datname = current_database() and state = 'active' and query like 'select pg_sleep%'"
)

// commits are the COMMIT paths after which the connection is still usable.
var commits = map[string]func(context.Context, pgx.Tx) error{
	"committed": func(context.Context, pgx.Tx) error { return nil },
	"refused": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into u values (1), (1)")
		return err
	},
	"not sent, because the record is gone": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "delete from idem.records")
		return err
	},
}

// During a COMMIT the connection has a secret key that the server does not know, so that no
// CancelRequest can reach the COMMIT. The next user of the connection must be able to cancel again.
func TestContextThatEndsCancelsTheQueryOfWhoeverHasTheConnectionNext(t *testing.T) {
	t.Parallel()
	for name, fn := range commits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			l := newLedger(t)
			if _, err := l.pool.Exec(ctx, "create table u (id int unique deferrable initially deferred)"); err != nil {
				t.Fatal(err)
			}
			pool := pgtest.Open(t, l.pool.Config().ConnString(), maxConns(1))
			_, err := idemDo(ctx, pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) { return ok, fn(ctx, tx) })
			if committed := name == "committed"; (err == nil) != committed {
				t.Errorf("err = %v", err)
			}
			waitIdle(t, pool)
			made := pool.Stat().NewConnsCount()
			done := make(chan error, 1)
			go func() {
				_, err := pool.Exec(ctx, sleep)
				done <- err
			}()
			awaitTrue(t, l.pool, isAsleep)
			cancel()
			if err := await(t, "the query", done); err == nil || pool.Stat().NewConnsCount() != made {
				t.Errorf("err = %v, %d connections were made", err, pool.Stat().NewConnsCount())
			}
			awaitTrue(t, l.pool, isAwakened)
		})
	}
}

func TestContextThatEndsCancelsTheQueryOfFn(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l := newLedger(t)
	done := make(chan error, 1)
	go func() {
		_, err := idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
			_, err := tx.Exec(ctx, sleep)
			return ok, err
		})
		done <- err
	}()
	awaitTrue(t, l.pool, isAsleep)
	cancel()
	if err := await(t, "the call", done); err == nil {
		t.Error("success")
	}
	awaitTrue(t, l.pool, isAwakened)
	l.wantNone("k")
}
