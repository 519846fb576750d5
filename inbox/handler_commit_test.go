package inbox_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
)

// wantNoneLost fails the test if a message is handled without a committed effect.
func (b *fixture) wantNoneLost(ms []inbox.Message, outcomes []inbox.Outcome) {
	b.t.Helper()
	for i, m := range ms {
		effects := b.count(`select count(*) from books where id = $1`, m.ID)
		if s := outcomes[i].State; effects != 1 && (s == inbox.Done || s == inbox.Duplicate) {
			b.t.Errorf("%s is acknowledged as %v with %d effects", m.ID, s, effects)
		}
	}
	if n := b.count(`select count(*) from idem.inbox where state = 'handled' and id not in (select id from books)`); n != 0 {
		b.t.Errorf("%d messages count as handled without their effect", n)
	}
}

// A handler commits by a statement, and may begin another transaction, so that the connection looks
// unchanged. Afterwards the attempt may end in any way, in that handler or in one behind it. The
// COMMIT also commits the rows of the messages behind it, which are not handled yet.
func TestBatch_RepairsACommitHoweverTheAttemptEnds(t *testing.T) {
	t.Parallel()
	b := newFixture(t, connections(2))
	for name, end := range map[string]func(tx pgx.Tx) error{
		"no error":              func(pgx.Tx) error { return nil },
		"an error":              func(pgx.Tx) error { return errPoison },
		"a panic":               func(pgx.Tx) error { panic("at the disco") },
		"serialization failure": raise("40001"),
		"a locked row":          raise("55P03"),
		"a stale statement":     raise("26000"),
		"a deadline":            func(pgx.Tx) error { return context.DeadlineExceeded },
		"tx.Rollback":           func(tx pgx.Tx) error { return tx.Rollback(context.Background()) },
		"a lost session": func(tx pgx.Tx) error {
			_, err := tx.Exec(context.Background(), `select pg_terminate_backend(pg_backend_pid())`)
			return err
		},
		"a session that was terminated": func(tx pgx.Tx) error {
			if err := b.terminate(tx, tx.Conn().PgConn().PID()); err != nil {
				return err
			}
			_, err := tx.Exec(context.Background(), `select 1`)
			return err
		},
	} {
		for how, handle := range map[string]handling{"Batch": (*fixture).batch, "Bulk": (*fixture).bulk} {
			for at, commits := range map[int]string{1: "commit", 3: "commit; begin"} {
				ms := messages(name+how+commits, 6)
				fn := func(tx pgx.Tx, m inbox.Message) error {
					if err := b.record(tx, m); err != nil {
						return err
					}
					if m.ID == ms[1].ID {
						if _, err := tx.Exec(context.Background(), commits, pgx.QueryExecModeSimpleProtocol); err != nil {
							return err
						}
					}
					if m.ID == ms[at].ID {
						return end(tx)
					}
					return nil
				}
				outcomes := handle(b, ms, fn, noCircuit)
				b.wantNoneLost(ms, outcomes)
				if s := outcomes[1].State; s != inbox.Dead {
					t.Errorf("%s, %s, %s: the message whose handler commits is %v: %v", how, commits, name, s, outcomes[1].Err)
				}
				b.due()
				b.wantNoneLost(ms, handle(b, ms, b.record, noCircuit))
			}
		}
	}
}

func TestBatch_RepairsACommitAfterTheContextEnds(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	for name, lose := range map[string]bool{"and loses its connection": true, "and keeps its connection": false} {
		ms := messages(name, 3)
		ctx, leave := context.WithCancel(t.Context())
		_, _ = inbox.Batch(ctx, b.pool, consumer, ms, func(tx pgx.Tx, m inbox.Message) error {
			if err := b.record(tx, m); err != nil || m.ID != ms[0].ID {
				return err
			}
			if _, err := tx.Exec(context.Background(), "commit"); err != nil {
				return err
			}
			leave()
			if lose {
				_, err := tx.Exec(ctx, "select 1")
				return err
			}
			return nil
		})
		outcomes := b.batch(ms, b.record)
		if states(outcomes)[1:] != "DD" {
			t.Errorf("%s: the outcomes are %s", name, states(outcomes))
		}
		for _, m := range ms {
			if n := b.count(`select count(*) from books where id = $1`, m.ID); n != 1 {
				t.Errorf("%s has %d effects", m.ID, n)
			}
		}
	}
}
