package inbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

// proxied is a fixture with a second pool, behind a proxy that injects faults.
type proxied struct {
	*fixture
	proxy *pgproxy.Proxy
	via   *pgxpool.Pool
}

func newProxied(t *testing.T) *proxied {
	t.Helper()
	dsn := pgtest.DSN(t)
	p := &proxied{fixture: newFixtureOn(t, pgtest.Open(t, dsn)), proxy: pgtest.Proxy(t, dsn)}
	p.via = pgtest.Open(t, p.proxy.DSN())
	return p
}

func TestBatch_ResolvesALostAnswerToCommit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		point pgproxy.Point
		runs  int64
	}{
		"committed":     {pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), 3},
		"not committed": {pgproxy.Before(pgproxy.IsCommit), 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t)
			trap := p.proxy.Arm(test.point, pgproxy.Reset)
			outcomes, err := inbox.Batch(t.Context(), p.via, consumer, messages("m", 3), p.record)
			if err != nil {
				t.Fatal(err)
			}
			await(t, "the trap", trap.Fired())
			p.wantStates("DDD", outcomes) // and not duplicates: it was this call
			p.wantOnce(3)
			if n := p.runs.Load(); n != test.runs {
				t.Errorf("the handler ran %d times", n)
			}
		})
	}
}

func TestBatch_CountsNothingIfTheDatabaseGoesDown(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	outcomes, err := inbox.Batch(t.Context(), p.via, consumer, messages("m", 3), func(tx pgx.Tx, m inbox.Message) error {
		p.proxy.Refuse(pgproxy.Reset)
		p.proxy.Cut(pgproxy.Reset)
		return p.record(tx, m)
	}, inbox.WithMaxAttempts(1), inbox.WithLimits(limit, limit, 50*time.Millisecond))
	if err == nil {
		t.Error("there is no error")
	}
	p.wantStates("RRR", outcomes)
	p.proxy.Admit()
	if n := p.count(`select count(*) from idem.inbox`); n != 0 {
		t.Errorf("%d messages are stored", n)
	}
	outcomes, err = inbox.Batch(t.Context(), p.via, consumer, messages("m", 3), p.record)
	if err != nil {
		t.Error(err)
	}
	p.wantStates("DDD", outcomes)
	p.wantOnce(3)
}

// Two batches with the same messages in opposite orders run concurrently. Some of the messages have
// failed before, and one side gets them as redeliveries.
func TestBatch_DoesNotDeadlock(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	const rounds, size = 15, 50
	var failed []inbox.Message
	var ids []string
	for round := range rounds {
		for _, m := range messages(string(rune('a'+round)), size)[20:30] {
			failed, ids = append(failed, m), append(ids, m.ID)
		}
	}
	b.batch(failed, b.failing(ids...), noCircuit)
	b.due()
	b.runs.Store(0)
	done := make(chan error, 2)
	for side := range 2 {
		go func() {
			var all error
			for round := range rounds {
				ms := messages(string(rune('a'+round)), size)
				if side == 1 {
					for i := range size / 2 {
						ms[i], ms[size-1-i] = ms[size-1-i], ms[i]
					}
					redelivered(ms[20:30])
				}
				outcomes, err := inbox.Batch(context.Background(), b.pool, consumer, ms, b.record, inbox.WithRetries(0), inbox.WithLimits(limit, limit, limit))
				all = errors.Join(all, err)
				for _, o := range outcomes {
					if o.State == inbox.Retry {
						all = errors.Join(all, o.Err)
					}
				}
			}
			done <- all
		}()
	}
	for range 2 {
		if err := await(t, "the batches", done); err != nil {
			t.Error(err)
		}
	}
	b.wantOnce(rounds * size)
	if n := b.count(`select deadlocks from pg_stat_database where datname = current_database()`); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}
