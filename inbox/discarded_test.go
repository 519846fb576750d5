package inbox_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
)

// The statements of a session are lost to all handlers of a batch: the next one that needs one, or COMMIT, finds out.
func TestHandlerThatDiscardsWhatTheSessionHoldsHasNoOtherMessageBlamed(t *testing.T) {
	t.Parallel()
	for _, discard := range []string{"discard plans; deallocate all"} {
		for how, handle := range map[string]func(*books, []inbox.Message, func(pgx.Tx, inbox.Message) error, ...inbox.Option) []inbox.Outcome{
			"Batch": (*books).batch, "Bulk": (*books).bulk,
		} {
			for _, at := range []int{0, 4} {
				t.Run(discard+" in "+how+" at "+string(rune('0'+at)), func(t *testing.T) {
					t.Parallel()
					b := newBooks(t, connections(2))
					ms := messages("m", 5)
					fn := func(tx pgx.Tx, m inbox.Message) error {
						if err := b.enter(tx, m); err != nil || m.ID != ms[at].ID {
							return err
						}
						_, err := tx.Exec(context.Background(), discard, pgx.QueryExecModeSimpleProtocol)
						return err
					}
					want := []byte("DDDDD")
					for range 2 {
						want[at] = 'R'
						b.wantStates(string(want), handle(b, ms, fn, inbox.WithMaxAttempts(3)))
						if n := b.count(`select coalesce(sum(attempts), 0) + coalesce(sum(hindered), 0) from idem.inbox where id <> $1`, ms[at].ID); n != 0 {
							t.Errorf("%d attempts are counted of the others", n)
						}
						b.due()
						want = []byte("ddddd")
					}
					b.wantOnce(4)
				})
			}
		}
	}
}
