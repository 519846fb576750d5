package record

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// Operation is a row of idem.operations, without its input.
type Operation struct {
	ID, Scope, Key, Name string
	State, Step, Reason  string
	Undoing, Cancelled   bool
	Kind                 string // of the step at Seq: a call or an undo that was begun
	Epoch, Seq, Attempts int
	Since, WakeAt        time.Time
	Attended             bool // a process that is there works on it
	CreatedAt            time.Time
	EndedAt              *time.Time
	Parent               string // the operation that awaits it; empty if it is no child
	Input                Value  // as far as it was read

	Now time.Time // by the clock of the database
}

// InDoubt reports whether a call, or an undo, was begun and has no outcome on record.
func (o *Operation) InDoubt() bool { return o.Kind == "call" || o.Kind == "undo" }

// Parked is the state of an operation that waits for a person.
const Parked = "parked"

// A process that is there holds an advisory lock of its own number, or has a lease.
const operations = `SELECT o.id::text, o.scope, o.key, o.name, o.state, o.step, coalesce(o.reason, ''), o.undoing, o.cancelled, o.kind, o.epoch, o.seq, o.attempts,
	o.since, o.wake_at, coalesce(o.owner = ANY (present.instances), false), o.created_at, o.ended_at, coalesce(o.parent::text, ''), clock_timestamp()
	FROM idem.operations o, (SELECT ARRAY(
		SELECT l.objid::int8::int4 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = 1768187247::oid
		  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		UNION ALL
		SELECT instance FROM idem.leases WHERE expires_at > clock_timestamp()) AS instances) AS present `

func scanOperation(row pgx.CollectableRow) (Operation, error) {
	var o Operation
	err := row.Scan(&o.ID, &o.Scope, &o.Key, &o.Name, &o.State, &o.Step, &o.Reason, &o.Undoing, &o.Cancelled, &o.Kind, &o.Epoch, &o.Seq, &o.Attempts,
		&o.Since, &o.WakeAt, &o.Attended, &o.CreatedAt, &o.EndedAt, &o.Parent, &o.Now)
	return o, err
}

// FindOperation returns an operation, and nil if there is none.
func FindOperation(ctx context.Context, tx pgx.Tx, id string) (*Operation, error) {
	rows, err := tx.Query(ctx, operations+"WHERE o.id = $1::text::uuid", id)
	if err != nil {
		return nil, err
	}
	o, err := pgx.CollectExactlyOneRow(rows, scanOperation)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &o, err
}

// OperationFilter says which operations are listed.
type OperationFilter struct {
	ScopePrefix, Name, State string
	Step                     string
	Older                    time.Duration
	Before                   string // only those begun before this one, by its id
	Limit                    int
}

// ListOperations returns operations in the order of their beginning, the latest first. No index is in that order: it reads the table.
func ListOperations(ctx context.Context, tx pgx.Tx, f OperationFilter) ([]Operation, error) {
	rows, err := tx.Query(ctx, operations+`WHERE ($1 = '' OR (o.created_at, o.id) < (SELECT b.created_at, b.id FROM idem.operations b WHERE b.id = nullif($1, '')::uuid)) AND starts_with(o.scope, $2) AND ($3 = '' OR o.name = $3)
		AND ($4 = '' OR o.state = $4) AND ($5 = 0 OR o.created_at < clock_timestamp() - make_interval(secs => $5)) AND ($7 = '' OR o.step = $7) ORDER BY o.created_at DESC, o.id DESC LIMIT $6`,
		f.Before, f.ScopePrefix, f.Name, f.State, f.Older.Seconds(), f.Limit, f.Step)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanOperation)
}

// most is how many operations are listed: who has more has one cause for all of them.
const most = 1000

// ParkedOperations returns those that are parked, to which an index leads.
func ParkedOperations(ctx context.Context, tx pgx.Tx) ([]Operation, error) {
	rows, err := tx.Query(ctx, operations+"WHERE o.state = 'parked' ORDER BY o.since LIMIT $1", most)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanOperation)
}

// UnattendedOperations returns those that have been due for longer than old and that no process works on: no process is there that
// knows them by name, or none at all.
func UnattendedOperations(ctx context.Context, tx pgx.Tx, old time.Duration) ([]Operation, error) {
	rows, err := tx.Query(ctx, operations+`WHERE o.state = 'running' AND o.wake_at < clock_timestamp() - make_interval(secs => $1)
		AND (o.owner IS NULL OR o.owner <> ALL (present.instances)) ORDER BY o.wake_at LIMIT $2`, old.Seconds(), most)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanOperation)
}
