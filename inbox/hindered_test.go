package inbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/inbox"
)

// raise returns a handler that fails with a SQLSTATE of the server.
func raise(code string) func(pgx.Tx) error {
	return func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), fmt.Sprintf(`do $$ begin raise exception 'no' using errcode = '%s'; end $$`, code))
		return err
	}
}

func TestBatch_PostponesAHinderedMessageAlone(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	elsewhere := &pgconn.PgError{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P01"} // of a database of the handler's own
	for name, hinders := range map[string]func(pgx.Tx) error{
		"lock_timeout": raise("55P03"), "temp_file_limit": raise("53400"), "too many connections": raise("53300"),
		"serialization failure": raise("40001"), "deadlock": raise("40P01"), "read-only": raise("25006"), "connection failure": raise("08006"),
		"shutdown of another database": func(pgx.Tx) error { return elsewhere },
		"canceled":                     func(pgx.Tx) error { return fmt.Errorf("not done: %w", context.Canceled) },
		"its connection is ended": func(tx pgx.Tx) error {
			_, err := tx.Exec(context.Background(), `select pg_terminate_backend(pg_backend_pid())`)
			return err
		},
	} {
		for how, handle := range handlings {
			ms := messages(name+how, 6)
			states := "DDDRDD"
			for range 2 { // it is never a dead letter
				outcomes := handle(b, ms, func(tx pgx.Tx, m inbox.Message) error {
					if err := b.record(tx, m); err != nil || m.ID != ms[3].ID {
						return err
					}
					return hinders(tx)
				}, once...)
				b.wantStates(states, outcomes)
				if outcomes[3].Err == nil || b.attempts(ms[3].ID) != 0 {
					t.Errorf("%s: %+v, %d attempts are counted", name, outcomes[3], b.attempts(ms[3].ID))
				}
				b.due()
				states = strings.ReplaceAll(states, "D", "d")
			}
			b.wantStates("D", handle(b, ms[3:4], b.record))
		}
	}
	b.wantOnce(10 * 3 * 6)
}

func TestHandle_BacksOff(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	for name, test := range map[string]struct {
		fn   func(pgx.Tx) error
		want []time.Duration // in minutes
	}{
		"failed":   {func(pgx.Tx) error { return errPoison }, []time.Duration{1, 2, 4, 8, 10, 10}},
		"hindered": {raise("55P03"), []time.Duration{1, 1}},
	} {
		for i, least := range test.want {
			before := time.Now()
			o, err := inbox.Handle(t.Context(), b.pool, consumer, message(name), test.fn, inbox.WithBackoff(time.Minute, 10*time.Minute), noCircuit)
			if pause := o.RetryAt.Sub(before); err != nil || o.State != inbox.Retry || pause < least*time.Minute || pause > least*time.Minute*9/8+time.Minute {
				t.Errorf("%s, attempt %d: the backoff is %v, want about %d min; %v", name, i, pause, least, err)
			}
			b.due()
		}
	}
}

func TestWithOrder_BlocksBehindAHinderedMessage(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ms := keyed("a1", "b1", "a2", "b2")
	fn := func(tx pgx.Tx, m inbox.Message) error {
		if m.ID == "a1" {
			return raise("55P03")(tx)
		}
		return b.record(tx, m)
	}
	b.wantStates("RDRD", b.batch(ms, fn, ordered...))
	b.wantStates("R", b.batch(ms[2:3], fn, ordered...)) // in a delivery of its own
	b.due()
	b.wantStates("DdDd", b.batch(ms, b.record, ordered...))
	b.wantEffects("b1", "b2", "a1", "a2")
}
