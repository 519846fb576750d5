package inbox_test

import (
	"context"
	"fmt"
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
// unchanged. Afterwards the attempt may end in any way.
func TestBatch_RepairsACommitHoweverTheAttemptEnds(t *testing.T) {
	t.Parallel()
	raise := func(code string) func(*fixture, pgx.Tx) error {
		return func(_ *fixture, tx pgx.Tx) error {
			_, err := tx.Exec(context.Background(), fmt.Sprintf(`do $$ begin raise exception 'no' using errcode = '%s'; end $$`, code))
			return err
		}
	}
	ends := map[string]func(b *fixture, tx pgx.Tx) error{
		"an error":              func(*fixture, pgx.Tx) error { return errPoison },
		"a panic":               func(*fixture, pgx.Tx) error { panic("at the disco") },
		"serialization failure": raise("40001"),
		"a locked row":          raise("55P03"),
		"a stale statement":     raise("26000"),
		"a deadline":            func(*fixture, pgx.Tx) error { return context.DeadlineExceeded },
		"tx.Rollback":           func(_ *fixture, tx pgx.Tx) error { return tx.Rollback(context.Background()) },
		"a lost session": func(_ *fixture, tx pgx.Tx) error {
			_, err := tx.Exec(context.Background(), `select pg_terminate_backend(pg_backend_pid())`)
			return err
		},
		"a session that was terminated": func(b *fixture, tx pgx.Tx) error {
			pid := tx.Conn().PgConn().PID()
			b.exec(`select pg_terminate_backend($1)`, int64(pid))
			b.awaitGone(pid)
			_, err := tx.Exec(context.Background(), `select 1`)
			return err
		},
	}
	for how, handle := range map[string]handling{"Batch": (*fixture).batch, "Bulk": (*fixture).bulk} {
		for name, end := range ends {
			for at, commits := range map[int]string{1: "commit", 3: "commit; begin"} { // the handler that commits, or one behind it
				t.Run(fmt.Sprintf("%s, %s at %d, %s", commits, name, at, how), func(t *testing.T) {
					t.Parallel()
					b := newFixture(t, connections(2))
					ms := messages("m", 6)
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
							return end(b, tx)
						}
						return nil
					}
					outcomes := handle(b, ms, fn)
					b.wantNoneLost(ms, outcomes)
					if s := outcomes[1].State; s != inbox.Dead {
						t.Errorf("the message whose handler commits is %v: %v", s, outcomes[1].Err)
					}
					b.due()
					b.wantNoneLost(ms, handle(b, ms, b.record))
				})
			}
		}
	}
}
