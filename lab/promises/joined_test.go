package promises_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestJoinedCallIsCommittedWithTheCallersTransaction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, withMode(mode))
			tx := l.begin(ctx)
			if err := note(ctx, tx, "before"); err != nil {
				t.Fatal(err)
			}
			first, err := idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k"))
			if err != nil || first.Replayed || first.Status != 201 {
				t.Fatalf("%+v, %v", first, err)
			}
			inside, err := idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k"))
			want := first
			want.Replayed = true
			if diff := cmp.Diff(want, inside); err != nil || diff != "" {
				t.Errorf("inside the transaction: %v\n%s", err, diff)
			}
			l.wantNone("k") // invisible to others so far
			if err := errors.Join(note(ctx, tx, "after"), tx.Commit(ctx)); err != nil {
				t.Fatal(err)
			}
			l.wantCommitted("before", "k", "after")
			l.wantOnce("k")
			outside, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"))
			if diff := cmp.Diff(want, outside); err != nil || diff != "" {
				t.Errorf("after the commit: %v\n%s", err, diff)
			}
			if l.runs.Load() != 1 {
				t.Errorf("fn ran %d times", l.runs.Load())
			}
		})
	}
}

func TestJoinedCallVanishesWithTheCallersRollback(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	for key, end := range map[string]error{"completed": nil, "rejected": idem.Reject(ok)} {
		tx := l.begin(ctx)
		fn := func(tx pgx.Tx) (idem.Response, error) {
			resp, err := l.charge(key)(tx)
			return resp, errors.Join(err, end)
		}
		if _, err := idem.DoTx(ctx, tx, scope, key, hashA, fn); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
		l.wantNone(key)
		l.wantFree(key)
	}
}

func TestJoinedCallReplaysWhatDoRecorded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	want := l.charged(ctx, "k")
	want.Replayed = true
	tx := l.begin(ctx)
	got, err := idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k"))
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := idem.DoTx(ctx, tx, scope, "k", hashB, l.charge("k")); !errors.Is(err, idem.ErrMismatch) {
		t.Errorf("err = %v, want ErrMismatch", err)
	}
	if err := errors.Join(note(ctx, tx, "after"), tx.Commit(ctx)); err != nil {
		t.Error(err)
	}
	l.wantCommitted("k", "after")
}

func TestJoinedCallWorksOnTransactionsOfEveryOrigin(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dsn := pgtest.DSN(t)
	l := ledgerOn(t, pgtest.Open(t, dsn))
	for _, mode := range execModes {
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		config.DefaultQueryExecMode = mode
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(ctx)
		for name, begin := range map[string]func() (pgx.Tx, error){
			"plain":           func() (pgx.Tx, error) { return conn.Begin(ctx) },
			"serializable":    func() (pgx.Tx, error) { return conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable}) },
			"repeatable read": func() (pgx.Tx, error) { return conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}) },
			"of a batch": func() (pgx.Tx, error) {
				batch := &pgx.Batch{}
				batch.BeginTx(pgx.TxOptions{})
				results := conn.SendBatch(ctx, batch)
				return results.Tx(), results.Close()
			},
		} {
			key := mode.String() + " " + name
			tx, err := begin()
			if err != nil {
				t.Fatal(err)
			}
			for i := range 2 {
				if res, err := idem.DoTx(ctx, tx, scope, key, hashA, l.charge(key)); err != nil || res.Replayed != (i > 0) {
					t.Errorf("%s: %+v, %v", key, res, err)
				}
			}
			if err := tx.Commit(ctx); err != nil {
				t.Errorf("%s: %v", key, err)
			}
			l.wantOnce(key)
		}
	}
}

// A snapshot from before the winner's commit does not contain the response. Postgres then reports a
// serialization failure, and the caller has to run its transaction again.
func TestJoinedCallInAnOldSnapshotIsASerializationFailureNotAWrongAnswer(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		key := string(level)
		tx, err := l.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(ctx)
		if _, err := tx.Exec(ctx, "select 1 from ledger"); err != nil { // takes the snapshot
			t.Fatal(err)
		}
		l.charged(ctx, key)
		runs := l.runs.Load()
		_, err = idem.DoTx(ctx, tx, scope, key, hashA, l.charge(key))
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "40001" || !idem.Retryable(err) {
			t.Errorf("%s: err = %v, want the server's 40001", level, err)
		}
		if l.runs.Load() != runs {
			t.Error("fn was called")
		}
		tx.Rollback(ctx)
		l.wantOnce(key)
	}
}

// The statements of a warm connection can be discarded during a transaction, for example by a
// DISCARD ALL between two users of the connection.
func TestJoinedCallSurvivesThatItsStatementsWereDiscarded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for i, spoil := range []string{"deallocate all", "discard all"} {
		l.charged(ctx, fmt.Sprint("warm", i))
		waitIdle(t, l.pool)
		if _, err := l.pool.Exec(ctx, spoil); err != nil {
			t.Fatal(err)
		}
		var err error
		for range 2 { // the caller reruns its transaction after an error; the second run has to work
			err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
				_, err := idem.DoTx(ctx, tx, scope, spoil, hashA, l.charge(spoil))
				return err
			})
		}
		if err != nil {
			t.Errorf("after %q a connection is of no use any more: %v", spoil, err)
		}
	}
}

// labelledTx is a tx of the caller's own type. It cannot be compared, because its label cannot.
type labelledTx struct {
	pgx.Tx
	label any
}

func TestJoinedCallTakesATxThatCannotBeCompared(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	tx := l.begin(ctx)
	for i := range 3 {
		key := fmt.Sprint("k", i)
		if _, err := idem.DoTx(ctx, labelledTx{tx, []string{"a slice"}}, scope, key, hashA, l.charge(key)); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	l.wantOnce("k2")
}
