package pgproxy_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/lab/pgproxy"
)

func TestTrapSpringsOnce(t *testing.T) {
	t.Parallel()
	p := start(t)
	trap := p.Arm(pgproxy.Before(nil), pgproxy.Reset)
	first, second := connect(t, p.DSN(), pgx.QueryExecModeExec), connect(t, p.DSN(), pgx.QueryExecModeExec)
	if _, err := first.Exec(within(t), "select 1"); !isLost(err) {
		t.Errorf("got %v", err)
	}
	mustExec(t, second, "select 1")
	receive(t, trap.Fired(), "the trap to spring")
	if trap.Count() != 1 {
		t.Errorf("sprung %d times", trap.Count())
	}
}

// If a trap has caught a statement that never reaches its point, it must wait for another one.
func TestTrapIsNotSpentOnAStatementThatGoesAnotherWay(t *testing.T) {
	t.Parallel()
	database(t)
	for name, goAstray := range map[string]func(*testing.T, *pgproxy.Proxy, *pgx.Conn){
		"skipped": func(t *testing.T, _ *pgproxy.Proxy, conn *pgx.Conn) {
			batch := &pgx.Batch{}
			batch.Queue("select 1/0")
			batch.Queue("select 'caught'")
			if err := conn.SendBatch(within(t), batch).Close(); err == nil {
				t.Error("no error")
			}
		},
		"no statement at all": func(t *testing.T, _ *pgproxy.Proxy, conn *pgx.Conn) {
			mustExec(t, conn, "create function pg_temp.f() returns text begin atomic select 'x'; select 'caught'; end")
		},
		"unanswered": func(t *testing.T, p *pgproxy.Proxy, conn *pgx.Conn) {
			w, link := newWitness(t), only(t, p)
			w.exec("begin; lock %s")
			forwarded := p.Next(pgproxy.Forwarded, nil)
			done := inBackground(func() error { _, err := conn.Exec(within(t), w.sql("select 'caught' from %s")); return err })
			receive(t, forwarded, "the statement")
			link.Cut(pgproxy.Reset)
			receive(t, done, "the client to notice")
			mustExec(t, w.conn, "commit")
			receive(t, link.Done(), "the end of the connection")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t)
			trap := p.Arm(pgproxy.AfterAnswer(pgproxy.Contains("caught")), pgproxy.Reset)
			goAstray(t, p, connect(t, p.DSN(), pgx.QueryExecModeExec))
			if trap.Count() != 0 {
				t.Fatal("the trap has sprung")
			}
			if _, err := connect(t, p.DSN(), pgx.QueryExecModeExec).Exec(within(t), "select 'caught'"); !isLost(err) {
				t.Errorf("got %v", err)
			}
			receive(t, trap.Fired(), "the trap to spring")
		})
	}
}

func TestTrapForEachSpringsUntilDisarmed(t *testing.T) {
	t.Parallel()
	p := start(t)
	trap := p.ArmEach(pgproxy.Before(nil), pgproxy.Reset)
	for range 3 {
		if _, err := connect(t, p.DSN(), pgx.QueryExecModeExec).Exec(within(t), "select 1"); !isLost(err) {
			t.Errorf("got %v", err)
		}
		receive(t, trap.Fired(), "the trap to spring")
	}
	trap.Disarm()
	mustExec(t, connect(t, p.DSN(), pgx.QueryExecModeExec), "select 1")
	if trap.Count() != 3 {
		t.Errorf("sprung %d times", trap.Count())
	}
}

func TestReplacedAnswerIsAnErrorOfAStatementThatWasExecuted(t *testing.T) {
	t.Parallel()
	database(t)
	inEveryMode(t, func(t *testing.T, mode pgx.QueryExecMode) {
		b := begin(t, mode)
		trap := b.proxy.Replace(pgproxy.IsCommit, "COMMIT", "40003")
		batch := &pgx.Batch{}
		batch.Queue("select 1")
		batch.Queue("commit")
		err := b.conn.SendBatch(within(t), batch).Close()
		if failure, ok := errors.AsType[*pgconn.PgError](err); !ok || failure.Code != "40003" {
			t.Errorf("the client got %v", err)
		}
		mustExec(t, b.conn, "select 1")
		if b.rows() != 1 || trap.Count() != 1 {
			t.Errorf("%d rows, replaced %d times", b.rows(), trap.Count())
		}
	})
}

func TestRewrittenTextReachesTheServer(t *testing.T) {
	t.Parallel()
	p, err := pgproxy.NewRewriting(database(t), func(sql string) string { return strings.ReplaceAll(sql, "seven()", "7") })
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, mode := range modes {
		var n int
		if err := connect(t, p.DSN(), mode).QueryRow(within(t), "select $1::int + seven()", 1).Scan(&n); err != nil || n != 8 {
			t.Errorf("%v: %d, %v", mode, n, err)
		}
	}
}
