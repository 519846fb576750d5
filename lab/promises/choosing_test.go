package promises_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

// These tests verify what docs/choosing.md says about repeating a write that has no idempotency
// key.

// A repeated write leaves the same state, unless another client has written in between. The late
// repetition then overwrites the newer value.
func TestUpsertThatIsRepeatedLateOverwritesWhatIsNewer(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	execute(t, pool, "create table addresses (customer int primary key, city text)")
	const put = "insert into addresses values (1, $1) on conflict (customer) do update set city = excluded.city"
	city := func() (city string) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "select city from addresses").Scan(&city); err != nil {
			t.Fatal(err)
		}
		return city
	}
	for range 2 {
		execute(t, pool, put, "Lyon")
	}
	if got := city(); got != "Lyon" {
		t.Errorf("repeated at once: %s", got)
	}
	execute(t, pool, put, "Turin")
	execute(t, pool, put, "Lyon") // a repetition that was delayed for a long time
	if got := city(); got != "Lyon" {
		t.Errorf("repeated late: %s", got)
	}
}

// A compare-and-set happens once. A caller that repeats it after a lost answer gets the answer that
// it did not happen.
func TestCompareAndSetThatIsRepeatedIsRefusedAlthoughItWasDone(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	execute(t, pool, "create table accounts (id int primary key, balance int, version int); insert into accounts values (1, 100, 7)")
	const set = "update accounts set balance = 60, version = 8 where id = 1 and version = 7"
	if n := execute(t, pool, set); n != 1 {
		t.Fatalf("%d rows", n)
	}
	if n := execute(t, pool, set); n != 0 {
		t.Errorf("repeated: %d rows", n)
	}
}

// A unique business key never expires and refuses duplicates. The record beside it replays the
// response as long as it is retained.
func TestUniqueKeyOfTheBusinessHoldsWhenTheRecordHasExpired(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	execute(t, l.pool, "create table invoices (customer int, month date, unique (customer, month))")
	invoice := func() (idem.Result, error) {
		return idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
			_, err := tx.Exec(ctx, "insert into invoices values (7, '2026-11-01')")
			var pgErr *pgconn.PgError
			if errors.As(err, &pgErr) && pgErr.Code == "23505" {
				return idem.Response{}, idem.Reject(idem.Response{Status: 409})
			}
			return idem.Response{Status: 201}, err
		})
	}
	for _, replayed := range []bool{false, true} {
		if res, err := invoice(); err != nil || res.Status != 201 || res.Replayed != replayed {
			t.Errorf("%+v, %v", res, err)
		}
	}
	l.expire("k")
	if res, err := invoice(); err != nil || res.Status != 409 || res.Replayed || !res.Rejected {
		t.Errorf("after the record has expired: %+v, %v", res, err)
	}
	if n := l.count("select count(*) from invoices"); n != 1 {
		t.Errorf("%d invoices", n)
	}
}

func execute(t *testing.T, db interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
}, sql string, args ...any) int64 {
	t.Helper()
	tag, err := db.Exec(t.Context(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	return tag.RowsAffected()
}
