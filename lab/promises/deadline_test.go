package promises_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

// A rollback sets a deadline on the socket. The next user of the connection must not run into it.
func TestRollbackLeavesNoDeadlineOnTheConnection(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	for name, end := range map[string]func() (idem.Response, error){
		"an error":   func() (idem.Response, error) { return ok, errBusiness },
		"a reject":   func() (idem.Response, error) { return ok, idem.Reject(ok) },
		"a panic":    func() (idem.Response, error) { panic(errBusiness) },
		"no failure": func() (idem.Response, error) { return ok, nil },
	} {
		t.Run(name, func(t *testing.T) {
			var made dials
			pool := pgtest.Open(t, l.pool.Config().ConnString(), maxConns(1), made.on)
			for range 2 { // the second call is a replay, or fails again
				func() {
					defer func() { recover() }()
					idemDo(ctx, pool, scope, name, hashA, func(pgx.Tx) (idem.Response, error) { return end() })
				}()
			}
			waitIdle(t, pool)
			pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				_, err := idem.DoTx(ctx, tx, scope, name+"/joined", hashA, func(pgx.Tx) (idem.Response, error) { return ok, errBusiness })
				return err
			})
			if n := len(made.all()); n != 1 {
				t.Fatalf("%d connections", n)
			}
			if deadline := made.all()[0].lastDeadline(); !deadline.IsZero() {
				t.Errorf("the connection dies at %v", deadline)
			}
		})
	}
}
