package inquiry

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/torture/ledger"
	"github.com/idem-go/idem/lab/torture/letter"
)

// Take returns the state of the database, from one snapshot.
func Take(ctx context.Context, conn *pgx.Conn) (*letter.State, error) {
	s := &letter.State{}
	return s, ledger.Snapshot(ctx, conn, func(tx pgx.Tx) (err error) {
		said, err := ledger.Rows[struct{ Letter []byte }](ctx, tx, `SELECT convert_to(letter, 'UTF8') FROM torture.said`)
		if err != nil {
			return err
		}
		for _, row := range said {
			l, err := letter.Decode(row.Letter)
			if err != nil {
				return err
			}
			s.Said = append(s.Said, l)
		}
		const waiting = `SELECT id::text FROM idem.outbox UNION ALL SELECT id::text FROM idem.delayed`
		if s.Waiting, err = ledger.Rows[letter.ID](ctx, tx, waiting); err != nil {
			return err
		}
		if s.Effects, err = ledger.Rows[letter.Effect](ctx, tx, `SELECT consumer, id, at FROM torture.heard ORDER BY place`); err != nil {
			return err
		}
		const dead = `SELECT consumer, source, id, key, reason, payload, attempts FROM idem.dead_letters`
		if s.Dead, err = ledger.Rows[letter.Dead](ctx, tx, dead); err != nil {
			return err
		}
		if s.Inbox, err = ledger.Rows[letter.Inbox](ctx, tx, `SELECT consumer, id FROM idem.inbox`); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`).Scan(&s.Deadlocks)
	})
}
