package inbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestBatch_CostsTwoRoundTrips(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	via := pgtest.Open(t, p.proxy.DSN(), func(c *pgxpool.Config) { c.MaxConns = 1 })
	handle := func(prefix string, n int) int {
		p.proxy.ResetTally()
		outcomes, err := inbox.Batch(t.Context(), via, consumer, messages(prefix, n), func(pgx.Tx, inbox.Message) error { return nil })
		if err != nil || outcomes[n-1].State != inbox.Done {
			t.Fatalf("%+v, %v", outcomes, err)
		}
		return p.proxy.ResetTally().Turns
	}
	handle("warm", 1)
	for _, n := range []int{1, 100} {
		if got := handle(fmt.Sprint("of", n), n); got != 2 {
			t.Errorf("%d messages: %d round trips", n, got)
		}
	}
}

// observed is an observer that keeps the data of the last call, without times.
type observed struct {
	inbox.TraceHandledData
	calls int
}

func (o *observed) TraceHandled(_ context.Context, data inbox.TraceHandledData) {
	o.calls++
	data.Duration = 0
	o.TraceHandledData = data
}

func TestObserver_GetsTheCounts(t *testing.T) {
	t.Parallel()
	b := newFixture(t, connections(9))
	o := &observed{}
	b.batch(messages("m", 2), b.record)
	other := message("m-0001")
	other.Payload = nil
	ms := append(messages("m", 4), message("x"), other, message("m-0003"))
	b.wantStates("ddDDXXd", b.batch(ms, b.failing("x"), inbox.WithObserver(o), inbox.WithMaxAttempts(1)))
	want := inbox.TraceHandledData{
		Consumer: consumer, Messages: 7, Done: 2, Duplicates: 3, Died: 2, Mismatches: 1, Failures: 1, Runs: 5, Transactions: 3, Cause: idem.CauseNone,
	}
	if diff := cmp.Diff(want, o.TraceHandledData); diff != "" || o.calls != 1 {
		t.Errorf("%d calls\n%s", o.calls, diff)
	}
	b.batch(keyed("a1", "b1", "c1", "d1", "d2"), b.failing("c1"), inbox.WithLanes(4), inbox.WithObserver(o))
	if o.calls != 2 || o.Messages != 5 || o.Done != 4 || o.Retried != 1 || o.Failures != 1 || o.Runs != 5 || o.Transactions < 4 {
		t.Errorf("in lanes, %d calls: %+v", o.calls, o.TraceHandledData)
	}
}

// The statements read only the rows of their messages, however many rows the table has.
func TestBatch_UsesTheIndex(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.exec(`insert into idem.inbox (consumer, source, id, hash, state, since, expires_at)
		select 'billing', 'orders', i::text, sha256(i::text::bytea), 'handled', now(), now() from generate_series(1, 10000) i`)
	b.exec(`analyze idem.inbox`)
	for name, query := range map[string]struct {
		sql  string
		args []any
	}{
		"load":     {db.LoadMessagesSQL, []any{"{orders,orders}", "{1,2}", make([]byte, 64), "billing"}},
		"failing":  {db.FailingMessagesSQL, []any{"{orders,orders}", "{a,b}", "billing"}},
		"resume":   {db.ResumeMessagesSQL, []any{"1 hour", "{orders,orders}", "{1,2}", "billing"}},
		"announce": {db.AnnounceMessageSQL, []any{"billing", "orders", "1", make([]byte, 32), "1 hour", ""}},
		"withdraw": {db.WithdrawMessageSQL, []any{"billing", "orders", "1"}},
		"redrive":  {db.RedriveMessageSQL, []any{"billing", "orders", "1"}},
		"drop":     {db.DropMessageSQL, []any{"billing", "orders", "1"}},
		"redrives": {db.MessageRedrivesSQL, []any{"billing", 10, 100}},
		"release":  {db.ReleaseMessagesSQL, []any{"{orders,orders}", "{1,2}", "billing", "1 hour"}},
		"stats":    {db.InboxStatsSQL, nil},
	} {
		rows, _ := b.pool.Query(t.Context(), "explain "+query.sql, append([]any{pgx.QueryExecModeExec}, query.args...)...)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if text := strings.Join(plan, "\n"); err != nil || strings.Contains(text, "Seq Scan on inbox") {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
}
