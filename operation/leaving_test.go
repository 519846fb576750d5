package operation_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/pgproxy"
	"github.com/idem-go/idem/operation"
)

// Who leaves still has recorded what its calls have returned. That may fail, too.
func TestWhoeverLeavesIsToldSoWhateverBecomesOfWhatItHasRecorded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	proxy, err := pgproxy.New(s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	d := operation.Define("leaving", func(op *operation.Op, in string) (idem.Response, error) {
		if _, err := operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge); err != nil {
			return idem.Response{}, err
		}
		if ctx.Err() == nil {
			proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit), pgproxy.Reset)
			leave()
		}
		_, err := operation.Tx(op, "confirm", func(tx pgx.Tx) (string, error) { return write("confirm " + in)(tx) })
		return created, err
	})
	if _, err := d.Do(ctx, s.through(proxy).pool, scope, "k", hashA, "a"); !errors.Is(err, idem.ErrInProgress) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "a", idem.WithWait(limit)); err != nil {
		t.Error(err)
	}
	if n, _ := s.bank.keys(); n != 1 {
		t.Errorf("the bank was charged under %d keys", n)
	}
}
