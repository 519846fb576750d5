package promises_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

// endings are ways in which fn ends without returning.
var endings = map[string]func(pgx.Tx){
	"panic":           func(pgx.Tx) { panic(errBusiness) },
	"Goexit":          func(pgx.Tx) { runtime.Goexit() },
	"panic with rows": func(tx pgx.Tx) { tx.Query(context.Background(), "select 1"); panic(errBusiness) },
	"Goexit with rows": func(tx pgx.Tx) {
		tx.Query(context.Background(), "select 1")
		runtime.Goexit()
	},
	"panic in a savepoint": func(tx pgx.Tx) {
		pgx.BeginFunc(context.Background(), tx, func(pgx.Tx) error { panic(errBusiness) })
	},
	"panic after an SQL error": func(tx pgx.Tx) { tx.Exec(context.Background(), "select 1/0"); panic(errBusiness) },
	"panic after raw rollback": func(tx pgx.Tx) { tx.Exec(context.Background(), "rollback"); panic(errBusiness) },
}

func TestPanicAndGoexitOfFnRollBackAndGoOn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			recovered, returned := escape(t, func() {
				idemDo(ctx, l.pool, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
					if _, err := l.charge(name)(tx); err != nil {
						t.Error(err)
					}
					end(tx)
					return ok, nil
				})
			})
			if returned {
				t.Error("Do returned")
			}
			if panicked := strings.HasPrefix(name, "panic"); panicked && recovered != errBusiness || !panicked && recovered != nil {
				t.Errorf("recovered %v", recovered)
			}
			l.wantNone(name)
			waitIdle(t, l.pool)
			if _, err := idemDo(ctx, l.pool, scope, name, hashA, l.charge(name), idem.WithWait(limit)); err != nil {
				t.Error(err)
			}
			l.wantOnce(name)
		})
	}
	l.wantHealthy()
}

// Whatever fn does, the call releases its connection.
func TestNoEndingOfFnLeaksAConnection(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(2))
	fns := []func(pgx.Tx) (idem.Response, error){
		func(pgx.Tx) (idem.Response, error) { return ok, nil },
		func(pgx.Tx) (idem.Response, error) { return ok, errBusiness },
		func(pgx.Tx) (idem.Response, error) { return ok, idem.Reject(ok) },
		func(tx pgx.Tx) (idem.Response, error) { tx.Commit(ctx); return ok, nil },
		func(tx pgx.Tx) (idem.Response, error) { tx.Exec(ctx, "commit"); return ok, nil },
		func(tx pgx.Tx) (idem.Response, error) { tx.Exec(ctx, "select 1/0"); return ok, nil },
		func(tx pgx.Tx) (idem.Response, error) { tx.Query(ctx, "select 1"); return ok, nil },
		func(tx pgx.Tx) (idem.Response, error) { tx.Conn().Close(ctx); return ok, nil },
		func(tx pgx.Tx) (idem.Response, error) { panic(errBusiness) },
		func(tx pgx.Tx) (idem.Response, error) { runtime.Goexit(); return ok, nil },
		func(tx pgx.Tx) (idem.Response, error) { return idem.Response{Body: make([]byte, 2<<20)}, nil },
	}
	for round := range 5 {
		for i, fn := range fns {
			escape(t, func() { idemDo(ctx, l.pool, scope, fmt.Sprint(round, "/", i), hashA, fn) })
		}
	}
	waitIdle(t, l.pool)
	l.wantHealthy()
	var conns []*pgxpool.Conn // every connection can be acquired and is in no transaction
	for range 2 {
		conn, err := l.pool.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		if status := conn.Conn().PgConn().TxStatus(); status != 'I' {
			t.Errorf("a connection is in state %c", status)
		}
	}
	for _, conn := range conns {
		conn.Release()
	}
}
