package pgproxy_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

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

func TestTrapTakesHoldOfOneStatementAtATime(t *testing.T) {
	t.Parallel()
	w, p := newWitness(t), start(t)
	w.exec("begin; lock %s")
	held, free := connect(t, p.DSN(), pgx.QueryExecModeExec), connect(t, p.DSN(), pgx.QueryExecModeExec)
	trap := p.Arm(pgproxy.AfterAnswer(pgproxy.Contains("caught")), pgproxy.Reset)
	forwarded := p.Next(pgproxy.Forwarded, nil)
	done := inBackground(func() error { _, err := held.Exec(within(t), w.sql("select 'caught' from %s")); return err })
	receive(t, forwarded, "the first statement")
	mustExec(t, free, "select 'caught'")
	mustExec(t, w.conn, "commit")
	if err := receive(t, done, "the first statement to be lost"); !isLost(err) {
		t.Errorf("got %v", err)
	}
	receive(t, trap.Fired(), "the trap to spring")
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
		"cut in front of the point": func(t *testing.T, p *pgproxy.Proxy, conn *pgx.Conn) {
			link := only(t, p)
			p.SetLatency(time.Hour, pgproxy.ToClient)
			answered := p.Next(pgproxy.Answered, nil)
			done := inBackground(func() error { _, err := conn.Exec(within(t), "select 'caught'"); return err })
			receive(t, answered, "the answer")
			p.Cut(pgproxy.Reset)
			receive(t, done, "the client to notice")
			p.SetLatency(0)
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

func TestTrapsDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	b := begin(t, pgx.QueryExecModeExec)
	b.proxy.Arm(pgproxy.BeforePipeline(pgproxy.Contains("something else")), pgproxy.Reset)
	b.commit(b.proxy.Arm(pgproxy.Before(pgproxy.IsCommit), pgproxy.Reset))
	receive(t, b.link.Done(), "the server to notice")
	if b.rows() != 0 || b.drawn() != 1 {
		t.Errorf("%d rows and %d drawn, want 0 and 1", b.rows(), b.drawn())
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

func TestTrapCanBeForOneConnection(t *testing.T) {
	t.Parallel()
	p := start(t)
	spared, victim := connect(t, p.DSN(), pgx.QueryExecModeExec), connect(t, p.DSN(), pgx.QueryExecModeExec)
	target := p.Conns()[1]
	p.Arm(pgproxy.Before(func(s pgproxy.Statement) bool { return s.Conn == target }), pgproxy.Reset)
	mustExec(t, spared, "select 1")
	if _, err := victim.Exec(within(t), "select 1"); !isLost(err) {
		t.Errorf("got %v", err)
	}
}
