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
