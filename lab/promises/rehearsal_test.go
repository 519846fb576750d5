package promises_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsql"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/operation"
)

// rehearsals run a function through each entry point and return the error of the call.
var rehearsals = map[string]func(t *testing.T, l *ledger, fn func(tx pgx.Tx) error, opts ...idem.Option) error{
	"Do": func(t *testing.T, l *ledger, fn func(pgx.Tx) error, opts ...idem.Option) error {
		return errOf(idem.Do(t.Context(), l.pool, scope, "k", hashA, answering(fn), append(opts, idem.WithRetries(0))...))
	},
	"DoTx": func(t *testing.T, l *ledger, fn func(pgx.Tx) error, opts ...idem.Option) error {
		return pgx.BeginFunc(t.Context(), l.pool, func(tx pgx.Tx) error {
			return errOf(idem.DoTx(t.Context(), tx, scope, "k", hashA, answering(fn), opts...))
		})
	},
	"idemsql.Do": func(t *testing.T, l *ledger, fn func(pgx.Tx) error, opts ...idem.Option) error {
		return throughSQL(t, idemsql.OpenDB(l.pool), fn, opts)
	},
	"idemsql.Do through stdlib": func(t *testing.T, l *ledger, fn func(pgx.Tx) error, opts ...idem.Option) error {
		return throughSQL(t, stdlib.OpenDBFromPool(l.pool), fn, opts)
	},
	"operation": func(t *testing.T, l *ledger, fn func(pgx.Tx) error, opts ...idem.Option) error {
		d := operation.Define("rehearsed", func(op *operation.Op, in string) (idem.Response, error) {
			return idem.Response{Status: 201}, operation.Exec(op, "write", fn)
		})
		return errOf(d.Do(t.Context(), l.pool, scope, "k", hashA, "", opts...))
	},
}

func answering(fn func(pgx.Tx) error) func(pgx.Tx) (idem.Response, error) {
	return func(tx pgx.Tx) (idem.Response, error) { return idem.Response{Status: 201}, fn(tx) }
}

func throughSQL(t *testing.T, db *sql.DB, fn func(pgx.Tx) error, opts []idem.Option) error {
	defer db.Close()
	_, err := idemsql.Do(t.Context(), db, scope, "k", hashA, func(tx *sql.Tx) (idem.Response, error) {
		own, err := idemsql.Tx(context.Background(), tx)
		if err != nil {
			return idem.Response{}, err
		}
		return idem.Response{Status: 201}, fn(own)
	}, opts...)
	return err
}

func TestRehearsal_RunsFnTwiceAndCommitsOnce(t *testing.T) {
	for name, call := range rehearsals {
		t.Run(name, func(t *testing.T) {
			wantRehearsed(t, func(l *ledger, fn func(pgx.Tx) error) error { return call(t, l, fn, idem.WithRehearsal()) })
		})
	}
	t.Setenv("IDEM_REHEARSE", "1")
	t.Run("by the variable", func(t *testing.T) {
		wantRehearsed(t, func(l *ledger, fn func(pgx.Tx) error) error { return rehearsals["Do"](t, l, fn) })
		wantRehearsed(t, func(l *ledger, fn func(pgx.Tx) error) error { // takes no options of package idem
			o, err := inbox.Handle(t.Context(), l.pool, "rehearsing", inbox.Message{Source: "s", ID: "k"}, fn)
			return errors.Join(err, o.Err)
		})
	})
}

func wantRehearsed(t *testing.T, call func(*ledger, func(pgx.Tx) error) error) {
	t.Helper()
	l := newLedger(t)
	runs := 0
	err := call(l, func(tx pgx.Tx) error {
		runs++
		if n := 0; tx.QueryRow(context.Background(), "select count(*) from ledger").Scan(&n) != nil || n > 0 {
			t.Errorf("run %d sees %d rows of the one before", runs, n)
		}
		return note(context.Background(), tx, "k")
	})
	if n := l.entries("k"); err != nil || runs != 2 || n != 1 {
		t.Errorf("%d runs, %d effects, %v; want 2 runs and 1 effect", runs, n, err)
	}
	waitIdle(t, l.pool)
}

func TestRehearsal_FindsWhatCannotRunAgain(t *testing.T) {
	t.Parallel()
	for name, call := range rehearsals {
		l := newLedger(t)
		runs := 0
		err := call(t, l, func(tx pgx.Tx) error {
			if runs++; runs > 1 {
				return errBusiness
			}
			return note(context.Background(), tx, "k")
		}, idem.WithRehearsal())
		if !errors.Is(err, errBusiness) && name != "operation" || err == nil || !strings.Contains(err.Error(), "the second failed") {
			t.Errorf("%s: the error is %v", name, err)
		}
		l.wantNone("k")
	}
}

// Errors of fn in the first run are reported as they are without a rehearsal.
func TestRehearsal_KeepsTheErrorsOfTheFirstRun(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for name, test := range map[string]struct {
		fn   func(pgx.Tx) error
		want error
	}{
		"an error":        {func(pgx.Tx) error { return errBusiness }, errBusiness},
		"a lost error":    {func(tx pgx.Tx) error { _, _ = tx.Exec(ctx, "select 1/0"); return nil }, idem.ErrTxAborted},
		"rows left open":  {func(tx pgx.Tx) error { _, _ = tx.Query(ctx, "select 1"); return nil }, idem.ErrTxAborted},
		"Commit":          {func(tx pgx.Tx) error { _ = tx.Commit(ctx); return nil }, idem.ErrTxEnded},
		"rollback by SQL": {func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "rollback; begin"); return err }, idem.ErrTxEnded},
	} {
		runs := 0
		_, err := idemDo(ctx, l.pool, scope, name, hashA, answering(func(tx pgx.Tx) error { runs++; return test.fn(tx) }), idem.WithRehearsal())
		if !errors.Is(err, test.want) || runs != 1 {
			t.Errorf("%s: %d runs, %v; want one run and %v", name, runs, err, test.want)
		}
	}
	waitIdle(t, l.pool)
}

func TestRehearsal_IsRefusedOutsideOfTests(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "rehearsal")
	if out, err := exec.Command("go", "build", "-o", program, "./testdata/rehearsal").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for variable, want := range map[string]string{"": "idem: WithRehearsal runs every function twice", "0": "idem: WithRehearsal runs every function twice", "1": "<nil>"} {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), "IDEM_REHEARSE="+variable)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("IDEM_REHEARSE=%s: %v\n%s", variable, err, out)
		}
	}
}
