package promises_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

func TestContextThatEndsBeforeCommitRollsBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fn   func(ctx context.Context, end func(), tx pgx.Tx) error
		lost bool // the connection is lost during a statement
	}{
		"before fn returns": {func(_ context.Context, end func(), _ pgx.Tx) error { end(); return nil }, false},
		"before a statement": {func(ctx context.Context, end func(), tx pgx.Tx) error {
			end()
			_, err := tx.Exec(ctx, "select 1")
			return err
		}, false},
		"before a statement whose error is ignored": {func(ctx context.Context, end func(), tx pgx.Tx) error {
			end()
			tx.Exec(ctx, "select 1")
			return nil
		}, false},
		"before Reject": {func(_ context.Context, end func(), _ pgx.Tx) error { end(); return idem.Reject(ok) }, false},
		"during a statement": {func(ctx context.Context, end func(), tx pgx.Tx) error {
			time.AfterFunc(10*time.Millisecond, end)
			_, err := tx.Exec(ctx, "select pg_sleep(60)")
			return err
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, maxConns(1))
			l.wantHealthy()
			ctx, end := context.WithCancel(context.Background())
			defer end()
			res, err := idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
				resp, err := l.charge("k")(tx)
				return resp, errors.Join(err, test.fn(ctx, end, tx))
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("err = %v, want context.Canceled", err)
			}
			if idem.Retryable(err) {
				t.Errorf("%v is retryable", err)
			}
			if diff := cmp.Diff(idem.Result{}, res); diff != "" {
				t.Error(diff)
			}
			l.wantNone("k")
			if !test.lost {
				l.wantSameConnections(1)
			}
			if _, err := idemDo(context.Background(), l.pool, scope, "k", hashA, l.charge("k"), idem.WithWait(limit)); err != nil {
				t.Error(err)
			}
			l.wantOnce("k")
		})
	}
}

func TestContextThatHasEndedExecutesNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(1))
	ctx, end := context.WithCancel(context.Background())
	end()
	_, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"))
	if !errors.Is(err, context.Canceled) || l.runs.Load() != 0 {
		t.Errorf("err = %v, %d runs", err, l.runs.Load())
	}
	l.wantNone("k")
	l.wantHealthy()
}
