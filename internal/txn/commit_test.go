package txn

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/internal/pgproxy"
)

func isUnknown(err error) bool {
	var unknown *UnknownError
	return errors.As(err, &unknown)
}

func TestCommitThatTheServerRefusesIsItsOrdinaryErrorAndNothingIsCommitted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	err := b.engine.Do(t.Context(), 3, func(tx pgx.Tx) (bool, error) {
		_, err := tx.Exec(t.Context(), "insert into made values ('k', 'twice'), ('k', 'twice')") // is checked by COMMIT
		return false, err
	})
	if !HasCode(err, "23505") || isUnknown(err) || Transient(err) {
		t.Errorf("the error is %v", err)
	}
	b.wantMade("k", 0)
	if err := b.engine.Do(t.Context(), 0, write("next", false, nil)); err != nil || b.engine.Pool.Stat().NewConnsCount() != 1 {
		t.Errorf("the connection was not used again: %v", err)
	}
}

func TestCommitAnsweredByRollbackIsNoSuccess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.withEngine(pgx.TxOptions{CommitQuery: "rollback"}, DefaultLimits)
	err := e.Do(t.Context(), 3, write("k", false, nil))
	if !errors.Is(err, ErrAborted) || !errors.Is(err, pgx.ErrTxCommitRollback) || isUnknown(err) {
		t.Errorf("the error is %v", err)
	}
	b.wantMade("k", 0)
}

// The same error, whether COMMIT has happened or not: nobody but the database can tell.
func TestCommitWithoutAnAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		point pgproxy.Point
		made  int
	}{
		"it never arrived": {pgproxy.BeforePipeline(pgproxy.IsCommit), 0},
		"it was done":      {pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), 1},
	} {
		for _, how := range []pgproxy.Action{pgproxy.Reset, pgproxy.Hangup} {
			t.Run(name+", "+how.String(), func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				trap := b.proxy.Arm(test.point, how)
				err := b.engine.Do(t.Context(), 3, write("k", false, nil))
				await(t, "the trap", trap.Fired())
				if !isUnknown(err) || Rerunnable(err) {
					t.Errorf("the error is %v", err)
				}
				b.wantMade("k", test.made)
			})
		}
	}
}

// A session that the server ends may have committed before.
func TestCommitAnsweredByTheEndOfTheSessionIsUnknown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.withEngine(pgx.TxOptions{CommitQuery: "select pg_terminate_backend(pg_backend_pid())"}, DefaultLimits)
	if err := e.Do(t.Context(), 3, write("k", false, nil)); !isUnknown(err) || !HasCode(err, "57P01") {
		t.Errorf("the error is %v", err)
	}
}

func TestOrdinaryErrorsAreRefusalsAndFatalOnesAreNot(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{context.Canceled, false},
		{&pgconn.PgError{Severity: "ERROR", SeverityUnlocalized: "ERROR"}, true},
		{&pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: "ERROR"}, true},
		{&pgconn.PgError{Severity: "FATAL", SeverityUnlocalized: "FATAL"}, false},
		{&pgconn.PgError{Severity: "PANIK", SeverityUnlocalized: "PANIC"}, false},
		{&pgconn.PgError{Severity: "FATAL"}, false}, // as a pooler answers
		{&pgconn.PgError{Severity: "ERROR"}, true},
		{errors.Join(errBusiness, &pgconn.PgError{Severity: "ERROR"}), true},
	} {
		if got := refused(test.err); got != test.want {
			t.Errorf("refused(%#v) = %t", test.err, got)
		}
	}
}

func TestCommitIsNotSentOnceTheContextHasEnded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tx := b.open(b.engine, "k")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	trap := b.proxy.Arm(pgproxy.Before(pgproxy.IsCommit), pgproxy.Reset)
	if err := tx.Commit(ctx); !errors.Is(err, context.Canceled) || isUnknown(err) {
		t.Errorf("the error is %v", err)
	}
	tx.Close()
	b.wantMade("k", 0)
	select {
	case <-trap.Fired():
		t.Error("COMMIT was sent")
	default:
	}
}

// frozenCommit returns a transaction whose COMMIT is done, and its answer held back until the event's connection is resumed.
func (b *bench) frozenCommit(ctx context.Context, e *Engine) (answer chan error, event pgproxy.Event) {
	b.t.Helper()
	tx := b.open(e, "k")
	trap := b.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Freeze)
	answer = make(chan error, 1)
	go func() { answer <- tx.Commit(ctx) }()
	return answer, await(b.t, "the trap", trap.Fired())
}

func TestAnswerToCommitCountsAfterTheEndOfTheContext(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	answer, event := b.frozenCommit(ctx, b.withEngine(pgx.TxOptions{}, Limits{Acquire: limit, Rollback: limit, Commit: time.Hour}))
	cancel()
	event.Conn.Resume()
	if err := await(t, "the answer", answer); err != nil {
		t.Errorf("it is committed, but the error is %v", err)
	}
	b.wantMade("k", 1)
}

func TestCommitThatOutlastsTheGraceIsUnknownAndGoesOnByItself(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.withEngine(pgx.TxOptions{}, Limits{Acquire: limit, Rollback: limit, Commit: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	answer, event := b.frozenCommit(ctx, e)
	cancel()
	if err := await(t, "the answer", answer); !isUnknown(err) || !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	if n := Unanswered(e.Pool); n != 1 {
		t.Errorf("%d wait for an answer", n)
	}
	if n := e.Pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("the pool misses %d connections", n)
	}
	event.Conn.Resume()
	for deadline := time.Now().Add(limit); Unanswered(e.Pool) != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it waits although the answer has come")
		}
	}
	b.wantMade("k", 1)
}
