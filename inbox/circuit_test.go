package inbox_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
)

var errUnavailable = errors.New("the bank is unavailable")

// countInserts counts the rows that are inserted into idem.inbox, committed or rolled back. It uses
// a sequence, which a rollback does not undo.
func (b *fixture) countInserts() (inserts func() int) {
	b.t.Helper()
	b.exec(`create sequence inserts; grant usage on sequence inserts to public;
		create function count_insert() returns trigger language plpgsql as $$ begin perform nextval('public.inserts'); return new; end $$;
		create trigger count_insert before insert on idem.inbox for each row execute function count_insert()`)
	return func() int { return b.count(`select case when is_called then last_value else 0 end from inserts`) }
}

func unavailable(pgx.Tx, inbox.Message) error { return errUnavailable }

// noCircuit turns the circuit off.
var noCircuit = inbox.WithCircuit(0, 0)

func TestBatch_WritesRowsInProportionToItsMessages(t *testing.T) {
	t.Parallel()
	const n = 100
	even := func(tx pgx.Tx, m inbox.Message) error {
		if strings.ContainsAny(m.ID[len(m.ID)-1:], "02468") {
			return errUnavailable
		}
		return nil
	}
	b := newFixture(t)
	inserts := b.countInserts()
	for prefix, test := range map[string]struct {
		fn     func(pgx.Tx, inbox.Message) error
		handle handling
		limit  int
	}{
		"all of them":        {unavailable, (*fixture).batch, 4 * n},
		"every second one":   {even, (*fixture).batch, 6 * n},
		"all of them, Bulk":  {unavailable, (*fixture).bulk, 11 * n}, // log₂ n, and the failures
		"every second, Bulk": {even, (*fixture).bulk, 11 * n},
	} {
		before := inserts()
		test.handle(b, messages(prefix, n), test.fn, noCircuit)
		if got := inserts() - before; got > test.limit {
			t.Errorf("%s: %d rows were written for %d messages, the limit is %d", prefix, got, n, test.limit)
		}
		if got := b.count(`select count(*) from idem.inbox where state = 'failing' and attempts = 1 and id like $1`, prefix+"-%"); got != n && got != n/2 {
			t.Errorf("%s: %d are counted", prefix, got)
		}
	}
}

func TestCircuit_PausesAConsumerThatFailsWithEverything(t *testing.T) {
	t.Parallel()
	locked := func(tx pgx.Tx, _ inbox.Message) error { return raise("55P03")(tx) }
	for name, test := range map[string]struct {
		handle handling
		fn     func(pgx.Tx, inbox.Message) error
	}{
		"Handle": {(*fixture).each, unavailable}, "Batch": {(*fixture).batch, unavailable}, "Bulk": {(*fixture).bulk, unavailable},
		"Batch, postponed": {(*fixture).batch, locked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			inserts := b.countInserts()
			ms := messages("m", 100)
			outcomes := test.handle(b, ms, test.fn, inbox.WithBackoff(time.Hour, time.Hour), inbox.WithCircuit(20, time.Hour))
			paused := 0
			for _, o := range outcomes {
				if errors.Is(o.Err, inbox.ErrPaused) {
					paused++
					if time.Until(o.RetryAt) < 50*time.Minute {
						t.Errorf("%+v", o)
					}
				}
			}
			if n := b.count(`select coalesce(sum(attempts + hindered), 0) from idem.inbox`); n != 20 || paused != 80 {
				t.Errorf("%d attempts are counted, and %d messages wait", n, paused)
			}
			// A call writes nothing while the consumer is paused.
			before := inserts()
			b.wantStates(strings.Repeat("R", 100), test.handle(b, ms, test.fn, inbox.WithBackoff(time.Hour, time.Hour)))
			if n := inserts() - before; n != 0 {
				t.Errorf("%d rows were written while the consumer pauses", n)
			}
			o, err := inbox.Handle(t.Context(), b.pool, "another consumer", message("m"), b.recordID("m"))
			if err != nil || o.State != inbox.Done {
				t.Errorf("another one: %+v, %v", o, err)
			}
		})
	}
}

// The pauses are real time, and so short. The messages are made due by an UPDATE. The first ones
// are handled already, and so are of no use for a probe.
func TestCircuit_ProbesAfterEachPause(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	opts := []inbox.Option{inbox.WithBackoff(time.Millisecond, time.Millisecond), inbox.WithCircuit(5, 2*time.Millisecond), inbox.WithMaxAttempts(1000)}
	ms := messages("m", 50)
	b.batch(ms[:10], b.record)
	b.batch(ms, unavailable, opts...)
	attempts := func() int { return b.count(`select coalesce(sum(attempts), 0) from idem.inbox`) }
	if n := attempts(); n != 5 {
		t.Fatalf("%d attempts are counted", n)
	}
	for want := 6; want < 10; want++ {
		b.until(func() bool {
			b.due()
			b.batch(ms, unavailable, opts...)
			return attempts() >= want
		})
		if n := attempts(); n != want {
			t.Fatalf("%d attempts are counted after one more pause, want %d", n, want)
		}
	}
	if n := b.count(`select max(attempts) from idem.inbox`); n > 1 {
		t.Errorf("a message was tried %d times, while others were not", n)
	}
	b.until(func() bool {
		b.due()
		b.batch(ms, b.record, opts...)
		return b.count(`select count(*) from books`) >= len(ms)
	})
	b.wantOnce(len(ms))
}

func TestCircuit_StaysClosedForAFewFailures(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ms := messages("m", 20)
	var poison []string
	for i := 0; i < len(ms); i += 2 {
		poison = append(poison, ms[i].ID)
	}
	outcomes := b.batch(ms, b.failing(poison...), inbox.WithCircuit(2, time.Hour), inbox.WithMaxAttempts(1))
	b.wantStates(strings.Repeat("XD", 10), outcomes)
	b.wantOnce(10)
}
