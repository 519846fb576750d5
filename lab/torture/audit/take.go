package audit

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/ledger"
)

// Take returns the state of the database, from one snapshot.
func Take(ctx context.Context, conn *pgx.Conn) (*journal.State, error) {
	s := &journal.State{}
	return s, ledger.Snapshot(ctx, conn, func(tx pgx.Tx) (err error) {
		if s.Operations, err = ledger.Rows[journal.Operation](ctx, tx, operations); err != nil {
			return err
		}
		if s.Steps, err = ledger.Rows[journal.Step](ctx, tx, steps, ledger.Offset()); err != nil {
			return err
		}
		if s.Signals, err = ledger.Rows[journal.Signal](ctx, tx, `SELECT operation_id::text, name, convert_from(value, 'UTF8') FROM idem.signals`); err != nil {
			return err
		}
		if s.Effects, err = ledger.Rows[journal.Effect](ctx, tx, `SELECT operation_id::text, step, nonce, at, given FROM torture.steps`); err != nil {
			return err
		}
		if s.Moves, err = ledger.Rows[journal.Move](ctx, tx, moves, ledger.Offset()); err != nil {
			return err
		}
		s.Records, err = ledger.Rows[journal.Record](ctx, tx, `SELECT execution_id::text, key, state, body FROM idem.records`)
		for _, r := range s.Records {
			if err := json.Unmarshal(r.Body, &r.Answer); err != nil {
				r.Answer = nil
			}
		}
		return err
	})
}

const operations = `SELECT id::text, key, coalesce(convert_from(input, 'UTF8')::jsonb->>'Key', key), coalesce(parent::text, ''), state, step,
	coalesce(reason, ''), coalesce(reason_step, ''), coalesce(reason_text, ''), coalesce(error_step || ': ' || convert_from(error_text, 'UTF8'), ''),
	undoing, canceled, coalesce(without_code, false) FROM idem.operations`

var steps = `SELECT operation_id::text, kind, CASE kind WHEN 'undo' THEN 'undo ' ELSE '' END || name, outcome, coalesce(undos, 0),
	coalesce(convert_from(value, 'UTF8'), ''), coalesce((extract(epoch FROM due_at) * 1000000)::int8, 0), ` + ledger.Clock("recorded_at") + `
	FROM idem.steps ORDER BY operation_id, seq`

// A trigger writes the moves while the row of the operation is locked, so place has the order of the
// commits.
var moves = `SELECT operation_id::text, (row->>'epoch')::int, (row->>'attempts')::int, coalesce((row->>'owner')::int, 0), row->>'state',
	coalesce(row->>'reason', ''), coalesce(row->>'reason_step', ''), row->>'kind', row->>'step', (row->>'canceled')::bool,
	coalesce((row->>'without_calling')::bool, false), coalesce((row->>'without_code')::bool, false),
	(row->>'wake_at')::timestamptz > moved_at + interval '1 year', coalesce((row->>'deaths')::int, 0),
	CASE WHEN (row->>'deaths')::int >= 3 THEN greatest(0, extract(epoch FROM (row->>'wake_at')::timestamptz - moved_at) * 1000000000)::int8 ELSE 0 END, ` +
	ledger.Clock("(row->>'since')::timestamptz") + ", " + ledger.Clock("moved_at") + `,
	coalesce(nullif(regexp_replace(by, '^torture (direct|pooled) ', ''), by), '4294967295')::int8, starts_with(by, 'torture pooled '), known
	FROM torture.moves ORDER BY place`
