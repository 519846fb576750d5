package roundtrip

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/lab/pgtest"
)

// numbered returns statements whose answers are their numbers, unless they have to divide by zero.
func numbered(n int, replan bool) []*Statement {
	statements := make([]*Statement, n)
	for i := range statements {
		statements[i] = New(Statement{
			Name: fmt.Sprintf("test_%d", i), Replan: replan, SQL: fmt.Sprintf("select %d / $1::int4", i),
			Params: []Param{PlainParam}, Results: []int16{Text},
		})
	}
	return statements
}

// travel makes one trip of statements. The statement at index fails divides by zero, unless fails
// is -1.
func travel(t *testing.T, conn *pgx.Conn, statements []*Statement, fails int) (answers []string, err error) {
	t.Helper()
	trip := On(conn)
	for i, s := range statements {
		divisor := []byte("1")
		if i == fails {
			divisor = []byte("0")
		}
		trip.Add(s, divisor)
	}
	trip.Send(t.Context())
	for range statements {
		answer := "none"
		trip.Row(func(row *Row) { answer = row.Text() })
		answers = append(answers, answer)
	}
	return answers, trip.End()
}

// wantAnswers fails the test unless exactly the statements before the failing one have answers.
func wantAnswers(t *testing.T, conn *pgx.Conn, statements []*Statement, fails int) {
	t.Helper()
	want := make([]string, len(statements))
	for i := range want {
		if want[i] = strconv.Itoa(i); fails >= 0 && i >= fails {
			want[i] = "none"
		}
	}
	got, err := travel(t, conn, statements, fails)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var pgErr *pgconn.PgError
	if isDivision := errors.As(err, &pgErr) && pgErr.Code == "22012"; isDivision != (fails >= 0) || !isDivision && err != nil {
		t.Errorf("the error is %v", err)
	}
	if conn.IsClosed() || conn.PgConn().IsBusy() {
		t.Fatal("the connection is not ready for the next trip")
	}
}

func TestTrip_AnswersMatchStatementsIfOneFails(t *testing.T) {
	t.Parallel()
	dsn := pgtest.EmptyDSN(t)
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, dsn, mode)
			statements := numbered(4, false)
			if err := Prepare(t.Context(), conn, statements); err != nil {
				t.Fatal(err)
			}
			for fails := -1; fails < len(statements); fails++ {
				wantAnswers(t, conn, statements, fails)
				wantAnswers(t, conn, statements, -1)
			}
		})
	}
}

func TestTrip_SkipsUnreadAnswers(t *testing.T) {
	t.Parallel()
	dsn := pgtest.EmptyDSN(t)
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, dsn, mode)
			trip := On(conn)
			trip.Exec("create table made (n int)")
			trip.Add(before)
			trip.Add(New(Statement{SQL: "select 1 where false", Results: []int16{Text}}))
			trip.Add(after)
			trip.Exec("drop table made")
			trip.Send(t.Context())
			if tag := trip.Skip(); tag.String() != "CREATE TABLE" {
				t.Errorf("the tag is %q", tag)
			}
			trip.Skip()
			if trip.Row(func(*Row) { t.Error("scan is called without a row") }) {
				t.Error("Row reports a row that does not exist")
			}
			if err := trip.End(); err != nil {
				t.Error(err)
			}
			wantWords(t, conn, "before", "", "after")
		})
	}
}

// The trip reads more answers than it has sent statements.
func TestTrip_MissingAnswerIsAnError(t *testing.T) {
	t.Parallel()
	conn := newConn(t, pgx.QueryExecModeExec)
	trip := On(conn)
	trip.Exec("select 1")
	trip.Send(t.Context())
	trip.Skip()
	if trip.Skip(); trip.Err() == nil {
		t.Error("there is an answer without a statement")
	}
	if trip.End() == nil {
		t.Error("the trip has no error")
	}
}

// Replan prepares old statements again in one round trip, and leaves the others alone. The
// connection's record stays in step with the server.
func TestReplan_PreparesOnlyOldPlansAgain(t *testing.T) {
	t.Parallel()
	dsn := pgtest.EmptyDSN(t)
	const n = 4
	for due := range 1 << n {
		t.Run(fmt.Sprintf("%04b", due), func(t *testing.T) {
			t.Parallel()
			conn := connect(t, dsn, pgx.QueryExecModeCacheStatement)
			statements := numbered(n, true)
			if err := Prepare(t.Context(), conn, statements); err != nil {
				t.Fatal(err)
			}
			before := preparedTimes(t, conn)
			expirePlans(conn, statements, due)
			if MustReplan(conn) != (due != 0) {
				t.Errorf("MustReplan = %v", MustReplan(conn))
			}
			if err := Replan(t.Context(), conn); err != nil {
				t.Fatal(err)
			}
			if MustReplan(conn) {
				t.Error("a plan is still too old")
			}
			after := preparedTimes(t, conn)
			for i, s := range statements {
				if again := !after[s.Name].Equal(before[s.Name]); again != (due&(1<<i) != 0) {
					t.Errorf("%s: prepared again: %v", s.Name, again)
				}
			}
			wantAnswers(t, conn, statements, -1)
			if names := preparedNames(t, conn); len(names) != n {
				t.Errorf("the server has prepared %q", names)
			}
		})
	}
}

func preparedTimes(t *testing.T, conn *pgx.Conn) map[string]time.Time {
	t.Helper()
	rows, _ := conn.Query(t.Context(), "select name, prepare_time from pg_prepared_statements", pgx.QueryExecModeExec)
	times := map[string]time.Time{}
	var name string
	var at time.Time
	if _, err := pgx.ForEachRow(rows, []any{&name, &at}, func() error { times[name] = at; return nil }); err != nil {
		t.Fatal(err)
	}
	return times
}

// expirePlans makes the plans of those statements old whose bits are set in due, and renews the
// others.
func expirePlans(conn *pgx.Conn, statements []*Statement, due int) {
	for i, s := range statements {
		age := -time.Hour
		if due&(1<<i) != 0 {
			age = 2 * planAge
		}
		preparedOn(conn)[s].planned = time.Now().Add(-age)
	}
}

func TestReplan_OutlivesRollback(t *testing.T) {
	t.Parallel()
	conn := newConn(t, pgx.QueryExecModeCacheStatement)
	statements := numbered(2, true)
	if err := Prepare(t.Context(), conn, statements); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, "begin")
	expirePlans(conn, statements, 1<<0|1<<1)
	if err := Replan(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, "rollback")
	wantAnswers(t, conn, statements, -1)
}

// After an interrupted Renew the connection's record is still in step with the server.
func TestRenew_KeepsStatementsInStepIfInterrupted(t *testing.T) {
	t.Parallel()
	conn := newConn(t, pgx.QueryExecModeCacheStatement)
	statements := numbered(3, false)
	if err := Prepare(t.Context(), conn, statements); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Renew(ended, conn, nil); err == nil {
		t.Fatal("Renew succeeds although its context has ended")
	}
	if err := Prepare(t.Context(), conn, statements); err != nil {
		t.Error(err)
	}
	wantAnswers(t, conn, statements, -1)
}
