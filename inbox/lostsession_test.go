package inbox_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
)

// awaitGone waits until the server has ended a session.
func (b *fixture) awaitGone(pid uint32) {
	b.until(func() bool { return b.count(`select count(*) from pg_stat_activity where pid = $1`, int64(pid)) == 0 })
}

// losing returns a handler that records each message. For one message it lets end end the session,
// waits until the session is gone, and returns no error.
func (b *fixture) losing(id string, end func(tx pgx.Tx, pid uint32) error) func(pgx.Tx, inbox.Message) error {
	return func(tx pgx.Tx, m inbox.Message) error {
		if err := b.record(tx, m); err != nil || m.ID != id {
			return err
		}
		pid := tx.Conn().PgConn().PID()
		if err := end(tx, pid); err != nil {
			return err
		}
		b.awaitGone(pid)
		return nil
	}
}

// idleTooLong exceeds idle_in_transaction_session_timeout.
func idleTooLong(tx pgx.Tx, _ uint32) error {
	_, err := tx.Exec(context.Background(), `set local idle_in_transaction_session_timeout = '1ms'`)
	return err
}

// terminate ends the session of tx from another session.
func (b *fixture) terminate(_ pgx.Tx, pid uint32) error {
	_, err := b.pool.Exec(context.Background(), `select pg_terminate_backend($1)`, int64(pid))
	b.awaitGone(pid)
	return err
}

// The loss is read by the next handler, or by COMMIT.
func TestBatch_CountsAnIdleTimeoutAlone(t *testing.T) {
	t.Parallel()
	b := newFixture(t, connections(4))
	for name, test := range map[string]struct {
		handle handling
		slow   int // which message
		opts   []inbox.Option
	}{
		"Batch, the first one": {(*fixture).batch, 0, nil},
		"Batch, the last one":  {(*fixture).batch, 3, nil},
		"Bulk":                 {(*fixture).bulk, 1, nil},
		"in order in lanes":    {(*fixture).batch, 1, []inbox.Option{inbox.WithOrder(), inbox.WithLanes(2)}},
	} {
		ms := messages(name, 4)
		opts := append(slices.Clone(test.opts), inbox.WithMaxAttempts(3), noCircuit)
		want := []byte("DDDD")
		for i := range ms {
			ms[i].Key = ms[i].ID
		}
		for _, state := range "RRX" {
			want[test.slow] = byte(state)
			before := b.runs.Load()
			b.wantStates(string(want), test.handle(b, ms, b.losing(ms[test.slow].ID, idleTooLong), opts...))
			if n := b.runs.Load() - before; n > 12 { // all four, both halves, and each alone
				t.Errorf("%s: handlers of four messages ran %d times in a call", name, n)
			}
			if n := b.count(`select count(*) from idem.inbox where attempts > 0 and id like $1 and id <> $2`, name+"-%", ms[test.slow].ID); n != 0 {
				t.Errorf("%s: attempts at %d others are counted", name, n)
			}
			want = []byte("dddd")
			b.due()
		}
	}
	b.wantOnce(4 * 3)
}

func TestBatch_PostponesATerminatedSessionAlone(t *testing.T) {
	t.Parallel()
	b := newFixture(t, connections(4))
	for name, handle := range map[string]handling{"Batch": (*fixture).batch, "Bulk": (*fixture).bulk} {
		for _, cut := range []int{0, 4} {
			ms := messages(name+string(rune('0'+cut)), 5)
			want := []byte("DDDDD")
			want[cut] = 'R'
			before := b.runs.Load()
			b.wantStates(string(want), handle(b, ms, b.losing(ms[cut].ID, b.terminate), once...))
			if n := b.runs.Load() - before; n > 5*(1+1+inbox.DefaultRetries)*4 { // all, two halves, their halves, and each alone
				t.Errorf("handlers of five messages ran %d times", n)
			}
			if n := b.count(`select coalesce(sum(attempts), 0) from idem.inbox`); n != 0 {
				t.Errorf("%d attempts are counted", n)
			}
			b.due()
			b.wantStates(strings.Repeat("d", cut)+"D"+strings.Repeat("d", 4-cut), handle(b, ms, b.record))
		}
	}
	b.wantOnce(20)
}

// A handler that discards prepared statements affects later handlers of the batch, and COMMIT.
func TestBatch_CountsDiscardedStatementsAlone(t *testing.T) {
	t.Parallel()
	b := newFixture(t, connections(2))
	for how, handle := range map[string]handling{"Batch": (*fixture).batch, "Bulk": (*fixture).bulk} {
		ms := messages(how, 3)
		b.wantStates("RDD", handle(b, ms, func(tx pgx.Tx, m inbox.Message) error {
			if err := b.record(tx, m); err != nil || m.ID != ms[0].ID {
				return err
			}
			_, err := tx.Exec(context.Background(), "discard plans; deallocate all", pgx.QueryExecModeSimpleProtocol)
			return err
		}))
		if n := b.count(`select count(*) from idem.inbox where state = 'failing' and id not like '%-0000'`); n != 0 {
			t.Errorf("%d others are counted", n)
		}
	}
}
