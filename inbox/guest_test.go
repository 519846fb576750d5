package inbox_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestTwentyThousandMessagesInOneTransactionLeaveTheServerUsable(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	const n = 20_000
	outcomes, err := inbox.Bulk(t.Context(), b.pool, consumer, messages("m", n), func(tx pgx.Tx, ms []inbox.Message) error {
		var locks, writers int
		err := tx.QueryRow(t.Context(), `select count(*), (select count(distinct xmin::text) from idem.inbox)
			from pg_locks where pid = pg_backend_pid()`).Scan(&locks, &writers)
		if err != nil || locks > 30 || writers != 1 {
			t.Errorf("%d messages hold %d locks, and %d transactions, one within the other, have written them down; %v", len(ms), locks, writers, err)
		}
		if b.handle("another").State != inbox.Done { // on a connection of its own
			t.Error("no other is served")
		}
		return b.enterAll(tx, ms)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range outcomes {
		if o.State != inbox.Done {
			t.Fatalf("%+v", o)
		}
	}
	b.wantOnce(n + 1)
}

func TestBatchOfNewMessagesCostsTwoRoundTripsBesidesItsHandlers(t *testing.T) {
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

// observed is what an observer was told, without times.
type observed struct {
	inbox.TraceHandledData
	calls atomic.Int64
}

func (o *observed) TraceHandled(_ context.Context, data inbox.TraceHandledData) {
	o.calls.Add(1)
	data.Duration = 0
	o.TraceHandledData = data
}

func TestObserverIsToldWhatBecameOfTheMessages(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	o := &observed{}
	b.batch(messages("m", 2), b.enter)
	other := message("m-0001")
	other.Payload = nil
	ms := append(messages("m", 4), message("x"), other, message("m-0003"))
	b.wantStates("ddDDXXd", b.batch(ms, b.poisoned("x"), inbox.WithObserver(o), inbox.WithMaxAttempts(1)))
	want := inbox.TraceHandledData{
		Consumer: consumer, Messages: 7, Done: 2, Duplicates: 3, Died: 2, Mismatches: 1, Failures: 1, Runs: 5, Transactions: 3, Cause: idem.CauseNone,
	}
	if diff := cmp.Diff(want, o.TraceHandledData); diff != "" || o.calls.Load() != 1 {
		t.Errorf("%d calls\n%s", o.calls.Load(), diff)
	}
}
