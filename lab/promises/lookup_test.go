package promises_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestLookupTellsTheStateOfAKeyAndWritesNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	look := func(key string) idem.Entry {
		t.Helper()
		status, err := idem.Lookup(ctx, l.pool, scope, key)
		if err != nil {
			t.Fatal(err)
		}
		return status
	}

	if got := look("unused"); got != (idem.Entry{State: idem.StateUnused}) {
		t.Errorf("a key that was never used: %+v", got)
	}

	inFn, leave, done := make(chan struct{}), make(chan struct{}), make(chan idem.Result)
	go func() {
		res, err := idemDo(ctx, l.pool, scope, "paid", idem.Hash{1}, func(tx pgx.Tx) (idem.Response, error) {
			close(inFn)
			<-leave
			return l.charge("paid")(tx)
		})
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	<-inFn
	held := look("paid")
	if held.State != idem.StateProcessing || held.Since.IsZero() || time.Since(held.Since) > time.Minute {
		t.Errorf("a key in progress: %+v", held)
	}
	if other, err := idem.Lookup(ctx, l.pool, scope+"2", "paid"); err != nil || other.State != idem.StateUnused {
		t.Errorf("the same key in another scope: %+v, %v", other, err)
	}
	close(leave)
	res := <-done
	want := idem.Entry{
		State: idem.StateCompleted, ExecutionID: res.ExecutionID,
		Since: res.CreatedAt, CompletedAt: res.CompletedAt, ExpiresAt: res.ExpiresAt,
	}
	if diff := cmp.Diff(want, look("paid")); diff != "" {
		t.Errorf("a completed key (-want +got):\n%s", diff)
	}

	_, err := idemDo(ctx, l.pool, scope, "refused", idem.Hash{1}, func(pgx.Tx) (idem.Response, error) {
		return idem.Response{}, idem.Reject(idem.Response{Status: 402})
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := look("refused"); got.State != idem.StateFailed || got.CompletedAt.IsZero() {
		t.Errorf("a rejected key: %+v", got)
	}

	l.count(`with gone as (update idem.records set expires_at = clock_timestamp() where key = 'paid' returning 1) select count(*) from gone`)
	if got := look("paid"); got.State != idem.StateUnused {
		t.Errorf("an expired key: %+v", got)
	}
}

// During executions, a key that was seen in use must never appear unused later.
func TestLookupNeverMissesAnExecutionThatCommitsMeanwhile(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	ctx := context.Background()
	for _, isolation := range []string{"read committed", "serializable"} {
		reader := newPoolLike(t, l.pool, "set default_transaction_isolation = '"+isolation+"'")
		for range 100 {
			key := idem.Scope(isolation, time.Now().String())
			inFn, done := make(chan struct{}), make(chan error)
			go func() {
				_, err := idemDo(ctx, l.pool, scope, key, idem.Hash{1}, func(tx pgx.Tx) (idem.Response, error) {
					close(inFn)
					return idem.Response{}, nil
				})
				done <- err
			}()
			<-inFn
			for {
				status, err := idem.Lookup(ctx, reader, scope, key)
				if err != nil || status.State == idem.StateUnused {
					t.Fatalf("%s: %+v, %v", isolation, status, err)
				}
				if status.State == idem.StateCompleted {
					break
				}
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
	}
}

// newPoolLike returns another pool on the same database. Each of its connections has executed sql.
func newPoolLike(t *testing.T, pool *pgxpool.Pool, sql string) *pgxpool.Pool {
	t.Helper()
	config := pool.Config()
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql)
		return err
	}
	other, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	return other
}

func TestLookupRefusesNamesThatDoWouldRefuse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scope, key string
		want       error
	}{{"", "k", idem.ErrInvalidScope}, {"s", "", idem.ErrInvalidKey}, {"s", "k\x00", idem.ErrInvalidKey}} {
		if _, err := idem.Lookup(context.Background(), nil, c.scope, c.key); !errors.Is(err, c.want) {
			t.Errorf("Lookup(%q, %q) = %v, want %v", c.scope, c.key, err, c.want)
		}
	}
	if _, err := idem.Lookup(context.Background(), nil, "s", "k"); err == nil {
		t.Error("a nil pool was accepted")
	}
}

// If the database does not answer, Lookup must not report an unused key.
func TestLookupThatCannotAskIsAnError(t *testing.T) {
	t.Parallel()
	pool := pgtest.Open(t, pgtest.EmptyDSN(t))
	entry, err := idem.Lookup(t.Context(), pool, scope, "k")
	if err == nil || !strings.Contains(err.Error(), "run the migrations") || entry != (idem.Entry{}) {
		t.Errorf("without the schema: %+v, %v", entry, err)
	}
	pool.Close()
	if entry, err := idem.Lookup(t.Context(), pool, scope, "k"); err == nil || entry != (idem.Entry{}) {
		t.Errorf("on a pool that is closed: %+v, %v", entry, err)
	}
}
