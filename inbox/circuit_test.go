package inbox_test

import (
	"context"
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
	for name, test := range map[string]struct {
		fn     func(pgx.Tx, inbox.Message) error
		handle handling
		limit  int
	}{
		"all of them":        {unavailable, (*fixture).batch, 4 * n},
		"every second one":   {even, (*fixture).batch, 6 * n},
		"all of them, Bulk":  {unavailable, (*fixture).bulk, 11 * n}, // log₂ n, and the failures
		"every second, Bulk": {even, (*fixture).bulk, 11 * n},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			inserts := b.countInserts()
			test.handle(b, messages("m", n), test.fn, noCircuit)
			if got := inserts(); got > test.limit {
				t.Errorf("%d rows were written for %d messages, the limit is %d", got, n, test.limit)
			}
			if got := b.count(`select count(*) from idem.inbox where state = 'failing' and attempts = 1`); got != n && got != n/2 {
				t.Errorf("%d are counted", got)
			}
		})
	}
}

func TestCircuit_PausesAConsumerThatFailsWithEverything(t *testing.T) {
	t.Parallel()
	for name, handle := range handlings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			inserts := b.countInserts()
			ms := messages("m", 200)
			outcomes := handle(b, ms, unavailable, inbox.WithBackoff(time.Hour, time.Hour), inbox.WithCircuit(20, time.Hour))
			paused := 0
			for _, o := range outcomes {
				if errors.Is(o.Err, inbox.ErrPaused) {
					paused++
					if time.Until(o.RetryAt) < 50*time.Minute {
						t.Errorf("%+v", o)
					}
				}
			}
			if n := b.count(`select coalesce(sum(attempts), 0) from idem.inbox`); n != 20 || paused != 180 {
				t.Errorf("%d attempts are counted, and %d messages wait", n, paused)
			}
			// A call writes nothing while the consumer is paused.
			before := inserts()
			b.wantStates(strings.Repeat("R", 200), handle(b, ms, unavailable, inbox.WithBackoff(time.Hour, time.Hour)))
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

func TestCircuit_PausesNoLongerThanTheBackoff(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ms := messages("m", 30)
	opts := []inbox.Option{inbox.WithBackoff(time.Millisecond, 2*time.Millisecond), inbox.WithMaxAttempts(3)}
	for deadline := time.Now().Add(limit); b.count(`select count(*) from idem.dead_letters`) < len(ms); { // 90 attempts, 70 of them by pauses
		b.batch(ms, unavailable, opts...)
		if time.Now().After(deadline) {
			t.Fatal("they are kept for minutes")
		}
	}
}

// The pauses are real time, and so short. The messages are made due by an UPDATE.
func TestCircuit_ProbesAfterEachPause(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	opts := []inbox.Option{inbox.WithBackoff(time.Millisecond, time.Millisecond), inbox.WithCircuit(5, 2*time.Millisecond), inbox.WithMaxAttempts(1000)}
	ms := messages("m", 50)
	b.batch(ms, unavailable, opts...)
	attempts := func() int { return b.count(`select coalesce(sum(attempts), 0) from idem.inbox`) }
	if n := attempts(); n != 5 {
		t.Fatalf("%d attempts are counted", n)
	}
	for want := 6; want < 10; want++ {
		for deadline := time.Now().Add(limit); attempts() < want; {
			b.due()
			b.batch(ms, unavailable, opts...)
			if time.Now().After(deadline) {
				t.Fatal("nothing is tried")
			}
		}
		if n := attempts(); n != want {
			t.Fatalf("%d attempts are counted after one more pause, want %d", n, want)
		}
	}
	if n := b.count(`select max(attempts) from idem.inbox`); n > 1 {
		t.Errorf("a message was tried %d times, while others were not", n)
	}
	for deadline := time.Now().Add(limit); b.count(`select count(*) from books`) < len(ms); {
		b.due()
		b.batch(ms, b.record, opts...)
		if time.Now().After(deadline) {
			t.Fatal("they are not handled")
		}
	}
	b.wantOnce(len(ms))
}

// Duplicates behind failures take few transactions.
func TestBatch_FindsDuplicatesBehindFailuresTogether(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ms := messages("m", 500)
	b.batch(ms, b.record)
	var seen lastCall
	b.batch(append(messages("failed", 8), ms...), b.failing("failed-0000", "failed-0001", "failed-0002", "failed-0003", "failed-0004", "failed-0005", "failed-0006", "failed-0007"),
		inbox.WithObserver(&seen))
	if n := seen.data.Transactions; n > 8+3+10 { // the failures, their halved groups, and powers of two
		t.Errorf("it took %d transactions", n)
	}
}

// lastCall is an observer that keeps the data of the last call.
type lastCall struct{ data inbox.TraceHandledData }

func (s *lastCall) TraceHandled(_ context.Context, data inbox.TraceHandledData) { s.data = data }

func TestCircuit_StaysClosedForAFewFailures(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ms := messages("m", 100)
	var poison []string
	want := []byte(strings.Repeat("D", len(ms)))
	for i := 0; i < len(ms); i += 2 {
		poison = append(poison, ms[i].ID)
		want[i] = 'X'
	}
	b.wantStates(string(want), b.batch(ms, b.failing(poison...), inbox.WithCircuit(2, time.Hour), inbox.WithMaxAttempts(1)))
	b.wantOnce(50)
}

func TestCircuit_ProbesAMessageThatIsDue(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	handled := messages("handled", 30)
	b.batch(handled, b.record)
	opts := []inbox.Option{inbox.WithBackoff(time.Millisecond, time.Hour), inbox.WithCircuit(3, time.Millisecond), inbox.WithMaxAttempts(1000)}
	b.batch(messages("failed", 3), unavailable, opts...)
	b.exec(`update idem.inbox set retry_at = clock_timestamp() + interval '1 hour' where state = 'failing'`)
	all := append(append(handled, messages("failed", 3)...), messages("fresh", 3)...)
	want := strings.Repeat("d", 30) + "RRR" + "DDD"
	for deadline := time.Now().Add(limit); ; {
		outcomes := b.batch(all, b.record, opts...)
		if !errors.Is(outcomes[0].Err, inbox.ErrPaused) {
			b.wantStates(want, outcomes)
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing is tried")
		}
	}
}

// Each hindered attempt may take as long as a lock timeout, so the consumer must not try all
// messages.
func TestCircuit_PausesAConsumerThatIsAlwaysHindered(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	raise := `do $$ begin raise exception 'no' using errcode = '55P03'; end $$`
	runs := 0
	b.batch(messages("m", 200), func(tx pgx.Tx, m inbox.Message) error {
		runs++
		_, err := tx.Exec(t.Context(), raise)
		return err
	}, inbox.WithBackoff(time.Hour, time.Hour))
	if n := b.count(`select sum(hindered) from idem.inbox where attempts = 0`); n != inbox.DefaultCircuitFailures || runs != n {
		t.Errorf("%d are hindered after %d runs", n, runs)
	}
}

// Many failing messages before a good one open the circuit. The good one is handled before each of
// them was probed after a pause of its own.
func TestCircuit_HandlesAGoodMessageBehindFailingOnes(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ms := messages("bad", 60)
	var poison []string
	for _, m := range ms {
		poison = append(poison, m.ID)
	}
	ms = append(ms, messages("good", 1)...)
	opts := []inbox.Option{inbox.WithBackoff(300*time.Millisecond, time.Hour), inbox.WithCircuit(5, 300*time.Millisecond), inbox.WithMaxAttempts(1000)}
	for deadline := time.Now().Add(limit); b.count(`select count(*) from books`) == 0; {
		b.batch(ms, b.failing(poison...), opts...)
		if time.Now().After(deadline) {
			t.Fatal("it is not handled")
		}
	}
	if n := b.count(`select sum(hindered) from idem.inbox`); n == 0 {
		t.Error("each was tried behind a pause of its own, and counted")
	}
}
