package record

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/db"
)

// Operation is a row of idem.operations, without its input.
type Operation struct {
	ID, Scope, Key, Name string
	State                string
	Step                 string // the step in progress or waited for; for a parked operation the step where it stopped
	Undoing, Canceled    bool
	Kind                 string // kind of the step at Seq
	Begun                string // name of the step at Seq, as stored
	Epoch, Seq, Attempts int
	Reason, ReasonText   string // reason code and sentence; empty unless parked
	LastError            *LastError
	Since, WakeAt        time.Time
	Attended             bool // a running process works on it
	CreatedAt            time.Time
	EndedAt              *time.Time
	Parent               string // ID of the parent operation; empty if it is no child
	Input                Value  // without Stored unless revealed

	Now time.Time // by the clock of the database
}

// LastError is the last error of an operation, from an attempt at a call or an undo, or from a run
// of its function.
type LastError struct {
	Step    string // empty for an error of the function
	Attempt int
	At      time.Time
	NextAt  *time.Time // time of the next attempt; nil if there is none
	Text    string     // "sealed" until it is opened
	stored  []byte
}

// Open decrypts the text. If the sealer cannot open it, the text stays "sealed".
func (e *LastError) Open(operation string, sealer db.Sealer) {
	if e == nil {
		return
	}
	if text, err := db.OpenValue(sealer, e.stored, db.BoundError(operation, e.Step)); err == nil {
		e.Text = string(text)
	}
}

// OpenErrors calls Open for the last error of each operation.
func OpenErrors(all []Operation, sealer db.Sealer) {
	for i := range all {
		all[i].LastError.Open(all[i].ID, sealer)
	}
}

// UndoOf returns the step that the undo with this stored name undoes, and the number of the undo.
// The second undo of a step is stored under "step##2". A name without a number is the first undo.
func UndoOf(name string) (step string, number int) {
	step, digits, numbered := strings.Cut(name, "##")
	if !numbered {
		return step, 1
	}
	number, _ = strconv.Atoi(digits)
	return step, number
}

// UndoName returns the name of an undo as people see it.
func UndoName(name string) string {
	step, number := UndoOf(name)
	if number == 1 {
		return step
	}
	return fmt.Sprintf("%s (undo %d)", step, number)
}

// Parked is the state of an operation that waits for a person.
const Parked = "parked"

// operations is the beginning of a query for scanOperation. A process that runs holds an advisory
// lock on its instance number, or has a lease that has not expired.
const operations = `SELECT o.id::text, o.scope, o.key, o.name, o.state, o.step, coalesce(o.reason, ''), coalesce(o.reason_step, ''), coalesce(o.reason_text, ''),
	coalesce(o.error_step, ''), coalesce(o.error_attempt, 0), o.error_text, o.error_at, o.error_next_at, o.undoing, o.canceled, o.kind, o.epoch, o.seq, o.attempts, o.since, o.wake_at, coalesce(o.owner = ANY (present.instances), false), o.created_at, o.ended_at, coalesce(o.parent::text, ''), clock_timestamp()
	FROM idem.operations o, (SELECT ARRAY(
		SELECT l.objid::int8::int4 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = 1768187247::oid
		  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		UNION ALL
		SELECT instance FROM idem.leases WHERE expires_at > clock_timestamp()) AS instances) AS present `

// scanOperation scans a row of the query operations. The text of a plain error is readable at once,
// and that of a sealed one after Open.
func scanOperation(row pgx.CollectableRow) (Operation, error) {
	var o Operation
	var e LastError
	var stoppedAt string
	var at *time.Time
	err := row.Scan(&o.ID, &o.Scope, &o.Key, &o.Name, &o.State, &o.Begun, &o.Reason, &stoppedAt, &o.ReasonText, &e.Step, &e.Attempt, &e.stored, &at, &e.NextAt,
		&o.Undoing, &o.Canceled, &o.Kind, &o.Epoch, &o.Seq, &o.Attempts, &o.Since, &o.WakeAt, &o.Attended, &o.CreatedAt, &o.EndedAt, &o.Parent, &o.Now)
	if o.Step, _ = UndoOf(o.Begun); o.State == Parked {
		o.Step = stoppedAt
	}
	if e.Attempt > 0 && at != nil {
		e.At, e.Text, o.LastError = *at, "sealed", &e
		o.LastError.Open(o.ID, nil)
	}
	return o, err
}

// FindOperation returns an operation, or nil if there is none with this ID.
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

// OperationFilter selects operations. Zero fields select all operations.
type OperationFilter struct {
	ScopePrefix, Name, State string
	Step                     string
	Older                    time.Duration
	Before                   string // only operations created before the operation with this ID
	Limit                    int
}

// ListOperations returns operations by time of creation, the latest first. No index has this order,
// so the query scans the table.
func ListOperations(ctx context.Context, tx pgx.Tx, f OperationFilter) ([]Operation, error) {
	rows, err := tx.Query(ctx, operations+`WHERE ($1 = '' OR (o.created_at, o.id) < (SELECT b.created_at, b.id FROM idem.operations b WHERE b.id = nullif($1, '')::uuid)) AND starts_with(o.scope, $2) AND ($3 = '' OR o.name = $3)
		AND ($4 = '' OR o.state = $4) AND ($5 = 0 OR o.created_at < clock_timestamp() - make_interval(secs => $5)) AND ($7 = '' OR CASE WHEN o.state = 'parked' THEN o.reason_step ELSE o.step END = $7) ORDER BY o.created_at DESC, o.id DESC LIMIT $6`,
		f.Before, f.ScopePrefix, f.Name, f.State, f.Older.Seconds(), f.Limit, f.Step)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanOperation)
}

// most is the maximum number of operations that a list returns. If there are more, they very likely
// share one cause.
const most = 1000

// ParkedOperations returns parked operations, ordered by the beginning of the step at which they
// stopped. It uses a partial index.
func ParkedOperations(ctx context.Context, tx pgx.Tx) ([]Operation, error) {
	rows, err := tx.Query(ctx, operations+"WHERE o.state = 'parked' ORDER BY o.since LIMIT $1", most)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanOperation)
}

// Workers counts the processes that may run a Worker.
type Workers struct {
	// Sessions that look for due operations on behalf of all Workers. There are at most two, and
	// none if no Worker has a session.
	Guards int
	// Processes behind a pooler that are no relays. Each may run a Worker, or only make calls.
	Leased int
}

// ReadWorkers counts the processes that may run a Worker.
func ReadWorkers(ctx context.Context, tx pgx.Tx) (w Workers, err error) {
	err = tx.QueryRow(ctx, `SELECT (SELECT count(*) FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = 1768187248::oid
			AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())),
		(SELECT count(*) FROM idem.leases e WHERE e.expires_at > clock_timestamp() AND NOT EXISTS (SELECT FROM idem.relays r WHERE r.instance = e.instance))`).
		Scan(&w.Guards, &w.Leased)
	return w, err
}

// UnattendedOperations returns operations that have been due for longer than old without a process
// working on them. Either no process runs, or none that runs has the definition of the operation.
func UnattendedOperations(ctx context.Context, tx pgx.Tx, old time.Duration) ([]Operation, error) {
	rows, err := tx.Query(ctx, operations+`WHERE o.state = 'running' AND o.wake_at < clock_timestamp() - make_interval(secs => $1)
		AND (o.owner IS NULL OR o.owner <> ALL (present.instances)) ORDER BY o.wake_at LIMIT $2`, old.Seconds(), most)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanOperation)
}
