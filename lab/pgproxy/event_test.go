package pgproxy_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgproxy"
)

// record collects the SQL of all statements that reach a stage.
type record struct {
	mu   sync.Mutex
	sqls map[pgproxy.Stage][]string
	last map[pgproxy.Stage]pgproxy.Event
}

func observe(t testing.TB, p *pgproxy.Proxy) *record {
	r := &record{sqls: make(map[pgproxy.Stage][]string), last: make(map[pgproxy.Stage]pgproxy.Event)}
	t.Cleanup(p.Observe(func(e pgproxy.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sqls[e.Stage] = append(r.sqls[e.Stage], e.SQL)
		r.last[e.Stage] = e
	}))
	return r
}

func (r *record) at(stage pgproxy.Stage) ([]string, pgproxy.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sqls[stage]), r.last[stage]
}

func TestEveryStageOfEveryStatementIsReported(t *testing.T) {
	t.Parallel()
	database(t)
	inEveryMode(t, func(t *testing.T, mode pgx.QueryExecMode) {
		w, p := newWitness(t), start(t)
		conn := connect(t, p.DSN(), mode)
		seen := observe(t, p)
		forwarded, delivered := p.Next(pgproxy.Forwarded, pgproxy.IsCommit), p.Next(pgproxy.Delivered, pgproxy.IsCommit)
		batch := &pgx.Batch{}
		batch.BeginTx(pgx.TxOptions{})
		batch.Queue(w.sql("insert into %s select * from generate_series(1, 2)"))
		batch.Queue("commit")
		if err := conn.SendBatch(within(t), batch).Close(); err != nil {
			t.Fatal(err)
		}
		receive(t, forwarded, "the commit to be forwarded")
		event := receive(t, delivered, "the commit to be delivered")
		want := []string{"begin", w.sql("insert into %s select * from generate_series(1, 2)"), "commit"}
		for _, stage := range []pgproxy.Stage{pgproxy.Seen, pgproxy.Forwarded, pgproxy.Answered, pgproxy.Delivered} {
			sqls, last := seen.at(stage)
			if diff := cmp.Diff(want, sqls); diff != "" {
				t.Errorf("%s (-want +got):\n%s", stage, diff)
			}
			if last.Conn != only(t, p) {
				t.Errorf("%s: on another connection", stage)
			}
		}
		if event.Tag != "COMMIT" || event.Code != "" {
			t.Errorf("commit was answered by tag %q, code %q", event.Tag, event.Code)
		}
	})
}

func TestFailureIsReportedForTheStatementThatFailed(t *testing.T) {
	t.Parallel()
	database(t)
	inEveryMode(t, func(t *testing.T, mode pgx.QueryExecMode) {
		p := start(t)
		conn := connect(t, p.DSN(), mode)
		seen := observe(t, p)
		batch := &pgx.Batch{}
		for _, sql := range []string{"select 1 as one", "select 1 / (random() * 0)::int", "select 2 as two"} {
			batch.Queue(sql)
		}
		if err := conn.SendBatch(within(t), batch).Close(); err == nil {
			t.Fatal("no error")
		}
		sqls, last := seen.at(pgproxy.Answered)
		if diff := cmp.Diff([]string{"select 1 as one", "select 1 / (random() * 0)::int"}, sqls); diff != "" {
			t.Errorf("answered (-want +got):\n%s", diff)
		}
		if last.Tag != "" || last.Code != "22012" {
			t.Errorf("failure was reported with tag %q, code %q", last.Tag, last.Code)
		}
	})
}

func TestNextReportsOnce(t *testing.T) {
	t.Parallel()
	p := start(t)
	conn := connect(t, p.DSN(), pgx.QueryExecModeExec)
	next := p.Next(pgproxy.Answered, pgproxy.Contains("two"))
	mustExec(t, conn, "select 1 as one; select 2 as two")
	if e := receive(t, next, "the event"); e.SQL != "select 2 as two" {
		t.Errorf("got %q", e.SQL)
	}
	mustExec(t, conn, "select 3 as two")
	if len(next) != 0 {
		t.Error("reported twice")
	}
}

// The proxy must not report the rest of a pipeline that was cut.
func TestNothingIsReportedBehindACut(t *testing.T) {
	t.Parallel()
	database(t)
	second := pgproxy.Contains("second")
	for name, cut := range map[string]struct {
		at    pgproxy.Point
		stage pgproxy.Stage
	}{
		"before":        {pgproxy.Before(second), pgproxy.Seen},
		"after forward": {pgproxy.AfterForward(second), pgproxy.Seen},
		"after answer":  {pgproxy.AfterAnswer(second), pgproxy.Answered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t)
			conn := connect(t, p.DSN(), pgx.QueryExecModeExec)
			link := only(t, p)
			seen := observe(t, p)
			p.Arm(cut.at, pgproxy.Reset)
			batch := &pgx.Batch{}
			for _, sql := range []string{"select 'first'", "select 'second'", "select 'third'"} {
				batch.Queue(sql)
			}
			if err := conn.SendBatch(within(t), batch).Close(); !isLost(err) {
				t.Errorf("the client got %v", err)
			}
			receive(t, link.Done(), "the end of the connection")
			sqls, _ := seen.at(cut.stage)
			if diff := cmp.Diff([]string{"select 'first'", "select 'second'"}, sqls); diff != "" {
				t.Errorf("%s (-want +got):\n%s", cut.stage, diff)
			}
			if turns := p.Tally().Turns; turns != 0 && cut.stage == pgproxy.Seen {
				t.Errorf("%d turns, want 0", turns)
			}
		})
	}
}
