package inquiry

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/letter"
	"github.com/idem-go/idem/lab/torture/rule"
)

// Take writes the state of the database to writer, from one snapshot.
func Take(ctx context.Context, conn *pgx.Conn, writer *history.Writer) error {
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		for _, take := range []func(context.Context, pgx.Tx, *history.Writer) error{said, effects, waiting, dead, remembered, deadlocks} {
			if err := take(ctx, tx, writer); err != nil {
				return err
			}
		}
		return nil
	})
}

// each appends one row to writer for each row of the query.
func each(ctx context.Context, tx pgx.Tx, writer *history.Writer, query string, row func(pgx.CollectableRow) (letter.Row, error)) error {
	rows, err := tx.Query(ctx, query)
	if err != nil {
		return err
	}
	_, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (struct{}, error) {
		taken, err := row(r)
		writer.Append(taken)
		return struct{}{}, err
	})
	return err
}

func said(ctx context.Context, tx pgx.Tx, writer *history.Writer) error {
	return each(ctx, tx, writer, `SELECT letter FROM torture.said`, func(r pgx.CollectableRow) (letter.Row, error) {
		var encoded []byte
		if err := r.Scan(&encoded); err != nil {
			return letter.Row{}, err
		}
		l, err := letter.Decode(encoded)
		return letter.Row{Said: &letter.Said{Letter: l}}, err
	})
}

func effects(ctx context.Context, tx pgx.Tx, writer *history.Writer) error {
	const query = `SELECT consumer, id, place, at FROM torture.heard ORDER BY place`
	return each(ctx, tx, writer, query, func(r pgx.CollectableRow) (letter.Row, error) {
		e := &letter.Effect{}
		return letter.Row{Effect: e}, r.Scan(&e.Consumer, &e.ID, &e.Place, &e.At)
	})
}

func waiting(ctx context.Context, tx pgx.Tx, writer *history.Writer) error {
	return each(ctx, tx, writer, `SELECT id::text FROM idem.outbox UNION ALL SELECT id::text FROM idem.delayed`, func(r pgx.CollectableRow) (letter.Row, error) {
		w := &letter.Waiting{}
		return letter.Row{Waiting: w}, r.Scan(&w.ID)
	})
}

func dead(ctx context.Context, tx pgx.Tx, writer *history.Writer) error {
	const query = `SELECT side, consumer, source, id, key, reason, payload, attempts FROM idem.dead_letters`
	return each(ctx, tx, writer, query, func(r pgx.CollectableRow) (letter.Row, error) {
		d := &letter.Dead{}
		return letter.Row{Dead: d}, r.Scan(&d.Side, &d.Consumer, &d.Source, &d.ID, &d.Key, &d.Reason, &d.Payload, &d.Attempts)
	})
}

func remembered(ctx context.Context, tx pgx.Tx, writer *history.Writer) error {
	return each(ctx, tx, writer, `SELECT consumer, source, id FROM idem.inbox`, func(r pgx.CollectableRow) (letter.Row, error) {
		i := &letter.Inbox{}
		return letter.Row{Inbox: i}, r.Scan(&i.Consumer, &i.Source, &i.ID)
	})
}

// deadlocks writes a finding if the server counted a deadlock since its statistics were last reset.
// The workers themselves lock in an order that cannot deadlock.
func deadlocks(ctx context.Context, tx pgx.Tx, writer *history.Writer) error {
	var n int
	err := tx.QueryRow(ctx, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`).Scan(&n)
	if n > 0 {
		writer.Append(letter.Row{Finding: &letter.Finding{Rule: string(rule.NoDeadlock), Detail: fmt.Sprintf("there were %d", n)}})
	}
	return err
}
