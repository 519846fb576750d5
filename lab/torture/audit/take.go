package audit

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/journal"
)

// Take writes the state of the database to writer, from one snapshot.
func Take(ctx context.Context, conn *pgx.Conn, writer *history.Writer) error {
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		for _, take := range []func(context.Context, pgx.Tx, *history.Writer) error{operations, steps, signals, effects, records, moves} {
			if err := take(ctx, tx, writer); err != nil {
				return err
			}
		}
		return nil
	})
}

// each appends one row to writer for each row of the query.
func each(ctx context.Context, tx pgx.Tx, writer *history.Writer, query string, row func(pgx.CollectableRow) (journal.Row, error)) error {
	rows, err := tx.Query(ctx, query)
	if err != nil {
		return err
	}
	_, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (journal.Row, error) {
		taken, err := row(r)
		writer.Append(taken)
		return journal.Row{}, err
	})
	return err
}

func operations(ctx context.Context, tx pgx.Tx, writer *history.Writer) error {
	const query = `SELECT id::text, key, coalesce(convert_from(input, 'UTF8')::jsonb->>'Key', key), coalesce(parent::text, ''), state, step, coalesce(reason, ''), coalesce(reason_step, ''), coalesce(reason_text, ''),
		coalesce(error_step || ': ' || convert_from(error_text, 'UTF8'), ''), undoing, canceled, coalesce(without_code, false), epoch, attempts,
		(extract(epoch FROM since) * 1000000)::int8, coalesce((extract(epoch FROM ended_at) * 1000000)::int8, 0) FROM idem.operations`
	return each(ctx, tx, writer, query, func(r pgx.CollectableRow) (journal.Row, error) {
		o := &journal.Operation{}
		return journal.Row{Operation: o}, r.Scan(&o.ID, &o.Key, &o.Plan, &o.Parent, &o.State, &o.Step, &o.Reason, &o.ReasonStep, &o.ReasonText, &o.LastError,
			&o.Undoing, &o.Canceled, &o.WithoutCode, &o.Epoch, &o.Attempts, &o.Since, &o.Ended)
	})
}

func steps(ctx context.Context, tx pgx.Tx, writer *history.Writer) error {
	const query = `SELECT operation_id::text, seq, kind, CASE kind WHEN 'undo' THEN 'undo ' ELSE '' END || name, outcome, coalesce(undos, 0), coalesce(convert_from(value, 'UTF8'), ''),
		coalesce((extract(epoch FROM due_at) * 1000000)::int8, 0), recorded_at FROM idem.steps ORDER BY operation_id, seq`
	return each(ctx, tx, writer, query, func(r pgx.CollectableRow) (journal.Row, error) {
		s := &journal.Step{}
		var recorded time.Time
		err := r.Scan(&s.Operation, &s.Seq, &s.Kind, &s.Name, &s.Outcome, &s.Undos, &s.Value, &s.Due, &recorded)
		s.Recorded = onHistory(recorded)
		return journal.Row{Step: s}, err
	})
}

// onHistory converts a time of the database to the clock of package history. The database runs on
// this machine, so both clocks differ by a constant.
func onHistory(wall time.Time) time.Duration { return history.Now() - time.Since(wall.Round(0)) }

// moves writes the moves of each operation in the order of their commits. A trigger writes them
// while the row of the operation is locked, so place has that order.
func moves(ctx context.Context, tx pgx.Tx, writer *history.Writer) error {
	const query = `SELECT operation_id::text, (m.row->>'epoch')::int, (m.row->>'attempts')::int, coalesce((m.row->>'owner')::int, 0), m.row->>'state',
		coalesce(m.row->>'reason', ''), coalesce(m.row->>'reason_step', ''), coalesce(m.row->>'reason_text', ''), m.row->>'kind', m.row->>'step', (m.row->>'canceled')::bool,
		coalesce((m.row->>'without_calling')::bool, false), coalesce((m.row->>'without_code')::bool, false),
		(m.row->>'wake_at')::timestamptz > moved_at + interval '1 year',
		CASE WHEN (m.row->>'deaths')::int >= 3 THEN greatest(0, extract(epoch FROM (m.row->>'wake_at')::timestamptz - moved_at) * 1000000000)::int8 ELSE 0 END, (m.row->>'since')::timestamptz, moved_at,
		coalesce(nullif(regexp_replace(by, '^torture (direct|pooled) ', ''), by), '4294967295')::int8, starts_with(by, 'torture pooled '), known
		FROM torture.moves m ORDER BY place`
	return each(ctx, tx, writer, query, func(r pgx.CollectableRow) (journal.Row, error) {
		m := &journal.Move{}
		var since, at time.Time
		var by int64
		err := r.Scan(&m.Operation, &m.Epoch, &m.Attempts, &m.Owner, &m.State, &m.Reason, &m.ReasonStep, &m.ReasonText, &m.Kind, &m.Step, &m.Canceled,
			&m.WithoutCalling, &m.WithoutCode, &m.Endless, &m.Rest, &since, &at, &by, &m.Pooled, &m.Known)
		m.Since, m.At, m.By = onHistory(since), onHistory(at), uint32(by)
		return journal.Row{Move: m}, err
	})
}

func signals(ctx context.Context, tx pgx.Tx, writer *history.Writer) error {
	const query = `SELECT operation_id::text, name, convert_from(value, 'UTF8'), (extract(epoch FROM sent_at) * 1000000)::int8 FROM idem.signals`
	return each(ctx, tx, writer, query, func(r pgx.CollectableRow) (journal.Row, error) {
		s := &journal.Signal{}
		return journal.Row{Signal: s}, r.Scan(&s.Operation, &s.Name, &s.Value, &s.Sent)
	})
}

func effects(ctx context.Context, tx pgx.Tx, writer *history.Writer) error {
	const query = `SELECT operation_id::text, step, nonce, at, amount, given FROM torture.steps`
	return each(ctx, tx, writer, query, func(r pgx.CollectableRow) (journal.Row, error) {
		e := &journal.Effect{}
		var at int64
		err := r.Scan(&e.Operation, &e.Step, &e.Nonce, &at, &e.Amount, &e.Given)
		e.At = time.Duration(at)
		return journal.Row{Effect: e}, err
	})
}

func records(ctx context.Context, tx pgx.Tx, writer *history.Writer) error {
	const query = `SELECT execution_id::text, key, state, body FROM idem.records`
	return each(ctx, tx, writer, query, func(r pgx.CollectableRow) (journal.Row, error) {
		k := &journal.Record{}
		var body []byte
		if err := r.Scan(&k.ID, &k.Key, &k.State, &body); err != nil {
			return journal.Row{}, err
		}
		if body != nil {
			k.Answer = &journal.Answer{}
			if err := json.Unmarshal(body, k.Answer); err != nil {
				k.Answer = nil
			}
		}
		return journal.Row{Record: k}, nil
	})
}
