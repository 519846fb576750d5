package roundtrip

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// inSchema needs a schema that does not exist at first.
var (
	before   = New(Statement{Name: "test_before", SQL: "select 'before'", Results: []int16{Text}})
	inSchema = New(Statement{Name: "test_in_schema", SQL: "select word from app.words", Results: []int16{Text}})
	after    = New(Statement{Name: "test_after", SQL: "select 'after'", Results: []int16{Text}})

	three = []*Statement{before, inSchema, after}
)

const makeSchema = "create schema app; create table app.words as select 'there'::text as word"

func TestPrepare_SendsNothingInOtherExecModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	} {
		conn := newConn(t, mode)
		// Preparing would fail, because app.words is missing.
		if err := Prepare(t.Context(), conn, three); err != nil || MustPrepare(conn, three) {
			t.Errorf("%v: %v", mode, err)
		}
		wantWords(t, conn, "before", "", "after")
	}
}

func TestPrepare_SurvivesMissingSchema(t *testing.T) {
	t.Parallel()
	conn := newConn(t, pgx.QueryExecModeCacheStatement)
	for range 2 {
		var pgErr *pgconn.PgError
		if err := Prepare(t.Context(), conn, three); !errors.As(err, &pgErr) || pgErr.Code != "42P01" {
			t.Fatalf("the error is %v", err)
		}
		if conn.IsClosed() || conn.PgConn().IsBusy() || conn.PgConn().TxStatus() != 'I' {
			t.Fatal("the connection is not idle")
		}
		if MustPrepare(conn, []*Statement{before}) || !MustPrepare(conn, []*Statement{inSchema}) || !MustPrepare(conn, []*Statement{after}) {
			t.Error("the record of prepared statements is wrong")
		}
		wantWords(t, conn, "before", "", "after")
	}
	if _, err := conn.Exec(t.Context(), makeSchema, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(t.Context(), conn, three); err != nil || MustPrepare(conn, three) {
		t.Errorf("once the schema is there: %v", err)
	}
	wantWords(t, conn, "before", "there", "after")
}

func TestRenew_PreparesLostStatementsAgain(t *testing.T) {
	t.Parallel()
	for name, discard := range map[string]string{
		"as they were": "select 1", "deallocated": "deallocate test_before", "all deallocated": "deallocate all", "discarded": "discard all",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := newConn(t, pgx.QueryExecModeCacheStatement)
			two := []*Statement{before, after}
			if err := Prepare(t.Context(), conn, two); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Exec(t.Context(), discard, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatal(err)
			}
			if err := Renew(t.Context(), conn, nil); err != nil || !MustPrepare(conn, two) {
				t.Fatalf("forgotten: %v", err)
			}
			if names := preparedNames(t, conn); len(names) != 0 {
				t.Errorf("the server knows %q", names)
			}
			if err := Prepare(t.Context(), conn, two); err != nil {
				t.Fatal(err)
			}
			wantWords(t, conn, "before", "", "after")
		})
	}
}

// If a statement's name were its SQL, pgx would use it for the caller's queries of that text.
func TestPrepare_LeavesQueriesOfTheSameTextAlone(t *testing.T) {
	t.Parallel()
	conn := newConn(t, pgx.QueryExecModeCacheStatement)
	for range 3 {
		if err := Prepare(t.Context(), conn, []*Statement{before}); err != nil {
			t.Fatal(err)
		}
		var word string
		if err := conn.QueryRow(t.Context(), before.SQL).Scan(&word); err != nil || word != "before" {
			t.Errorf("%q, %v", word, err)
		}
		if err := Renew(t.Context(), conn, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// wantWords makes one trip of the three statements, without the second one if its wanted word is
// empty.
func wantWords(t *testing.T, conn *pgx.Conn, want ...string) {
	t.Helper()
	trip := On(conn)
	for i, s := range three {
		if want[i] != "" {
			trip.Add(s)
		}
	}
	trip.Send(t.Context())
	for i := range three {
		var word string
		if want[i] != "" && (!trip.Row(func(row *Row) { word = row.Text() }) || word != want[i]) {
			t.Errorf("answer %d is %q, want %q", i, word, want[i])
		}
	}
	if err := trip.End(); err != nil {
		t.Error(err)
	}
}

// preparedNames returns the names of the statements that the server has prepared.
func preparedNames(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	rows, _ := conn.Query(t.Context(), "select name from pg_prepared_statements where name like 'test_%' order by name", pgx.QueryExecModeExec)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return names
}
