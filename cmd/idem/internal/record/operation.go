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

// Operation is a row of idem.operations. The function Timeline sets Input.
type Operation struct {
	ID         string     `json:"operation_id"`
	Name       string     `json:"name"`
	Scope      string     `json:"scope"`
	Key        string     `json:"key"`
	State      string     `json:"state"`
	Step       string     `json:"step"` // the step in progress, or the step at which the operation parked
	Undoing    bool       `json:"undoing"`
	Canceled   bool       `json:"canceled"`
	Attempts   int        `json:"attempts"`
	Since      time.Time  `json:"since"`
	WakeAt     time.Time  `json:"wake_at"`
	Attended   bool       `json:"attended"` // a running process executes it
	CreatedAt  time.Time  `json:"created_at"`
	EndedAt    *time.Time `json:"ended_at"`
	Reason     string     `json:"reason,omitempty"` // the code; empty unless the operation is parked
	ReasonText string     `json:"reason_text,omitempty"`
	LastError  *LastError `json:"last_error,omitempty"`
	Parent     string     `json:"parent,omitempty"` // id of the operation whose child this is; empty if there is none

	Epoch int       `json:"-"`
	Seq   int       `json:"-"`
	Kind  string    `json:"-"` // the kind of the step at Seq
	Begun string    `json:"-"` // the name of the step at Seq, as stored
	Input Value     `json:"-"` // set by Timeline
	Now   time.Time `json:"-"` // the clock of the database
}

// LastError is the last error of an operation. It comes from an attempt at a call or an undo, or
// from a run of the function of the operation.
type LastError struct {
	Step    string     `json:"step,omitempty"` // empty if the function returned the error
	Attempt int        `json:"attempt"`
	At      time.Time  `json:"at"`
	NextAt  *time.Time `json:"next_at,omitempty"` // the next attempt; nil if there is none
	Text    string     `json:"text"`              // "sealed" until Open decrypts it
	stored  []byte
}

// Open decrypts the text. The text stays "sealed" if sealer does not have the key.
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

// UndoOf splits the stored name of an undo into the name of its step and the number of the undo.
// The first undo of a step has the name of the step, the second is stored as "step##2". Package
// operation reserves "#" in names.
func UndoOf(name string) (step string, number int) {
	step, digits, numbered := strings.Cut(name, "##")
	if !numbered {
		return step, 1
	}
	number, _ = strconv.Atoi(digits)
	return step, number
}

// UndoName returns the name of an undo for display.
func UndoName(name string) string {
	step, number := UndoOf(name)
	if number == 1 {
		return step
	}
	return fmt.Sprintf("%s (undo %d)", step, number)
}

// Parked is the state of an operation that waits for a person.
const Parked = "parked"

// operations is a query for operations without a WHERE clause. It reads the numbers of the running
// processes once, and not for each row, because a read of pg_locks locks the whole lock table for a
// moment.
const operations = `SELECT o.id::text, o.scope, o.key, o.name, o.state, o.step,
		coalesce(o.reason, ''), coalesce(o.reason_step, ''), coalesce(o.reason_text, ''),
		coalesce(o.error_step, ''), coalesce(o.error_attempt, 0), o.error_text, o.error_at, o.error_next_at,
		o.undoing, o.canceled, o.kind, o.epoch, o.seq, o.attempts, o.since, o.wake_at,
		coalesce(o.owner = ANY (running.instances), false), o.created_at, o.ended_at, coalesce(o.parent::text, ''), clock_timestamp()
	FROM idem.operations o, (SELECT ARRAY(` + runningInstances + `) AS instances) AS running `

// scanOperation reads a row of the query operations. A parked operation is shown at the step at
// which it parked, and any other operation at its current step.
//
// LastError is nil if there was no error since the last progress. Otherwise Open is called without
// a Sealer: it sets the text of an error that is not sealed.
func scanOperation(row pgx.CollectableRow) (Operation, error) {
	var o Operation
	var e LastError
	var parkedAt string
	var at *time.Time
	err := row.Scan(&o.ID, &o.Scope, &o.Key, &o.Name, &o.State, &o.Begun, &o.Reason, &parkedAt, &o.ReasonText, &e.Step, &e.Attempt, &e.stored, &at, &e.NextAt,
		&o.Undoing, &o.Canceled, &o.Kind, &o.Epoch, &o.Seq, &o.Attempts, &o.Since, &o.WakeAt, &o.Attended, &o.CreatedAt, &o.EndedAt, &o.Parent, &o.Now)
	if o.Step, _ = UndoOf(o.Begun); o.State == Parked {
		o.Step = parkedAt
	}
	if e.Attempt > 0 && at != nil {
		e.At, e.Text, o.LastError = *at, "sealed", &e
		o.LastError.Open(o.ID, nil)
	}
	return o, err
}

// FindOperation returns an operation, or nil if there is none.
func FindOperation(ctx context.Context, tx pgx.Tx, id string) (*Operation, error) {
	rows, _ := tx.Query(ctx, operations+"WHERE o.id = $1::text::uuid", id) // CollectExactlyOneRow returns the error
	o, err := pgx.CollectExactlyOneRow(rows, scanOperation)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &o, err
}

// OperationFilter selects operations. An empty field selects all.
type OperationFilter struct {
	ScopePrefix, Name, State string
	Step                     string
	Older                    time.Duration
	Before                   string // only operations created before the one with this id
	Limit                    int
}

// ListOperations returns operations, the latest first. No index has this order, so the query reads
// the whole table.
func ListOperations(ctx context.Context, tx pgx.Tx, f OperationFilter) ([]Operation, error) {
	rows, _ := tx.Query(ctx, operations+`
		WHERE ($1 = '' OR (o.created_at, o.id) < (SELECT b.created_at, b.id FROM idem.operations b WHERE b.id = nullif($1, '')::uuid))
		AND starts_with(o.scope, $2) AND ($3 = '' OR o.name = $3) AND ($4 = '' OR o.state = $4)
		AND ($5 = 0 OR o.created_at < clock_timestamp() - make_interval(secs => $5))
		AND ($7 = '' OR CASE WHEN o.state = 'parked' THEN o.reason_step ELSE o.step END = $7)
		ORDER BY o.created_at DESC, o.id DESC LIMIT $6`,
		f.Before, f.ScopePrefix, f.Name, f.State, f.Older.Seconds(), f.Limit, f.Step) // CollectRows returns the error
	return pgx.CollectRows(rows, scanOperation)
}

// maxListed is the maximum length of a list of operations that need a person. More of them usually
// have a common cause, and a longer list would not help.
const maxListed = 1000

// ParkedOperations returns parked operations, the earliest first. It uses an index.
func ParkedOperations(ctx context.Context, tx pgx.Tx) ([]Operation, error) {
	rows, _ := tx.Query(ctx, operations+"WHERE o.state = 'parked' ORDER BY o.since LIMIT $1", maxListed) // CollectRows returns the error
	return pgx.CollectRows(rows, scanOperation)
}

// Workers counts what the database shows of the processes that run a Worker.
type Workers struct {
	// Guards is the number of sessions that look for due operations on behalf of all Workers. There
	// are at most two. There are none if no Worker has a session of its own.
	Guards int
	// Leased is the number of processes behind a pooler that run no relay. Each of them may run a
	// Worker, or only calls.
	Leased int
}

// ReadWorkers counts the Workers of the database. A session that looks for due operations holds an
// advisory lock whose first number is 1768187248.
func ReadWorkers(ctx context.Context, tx pgx.Tx) (w Workers, err error) {
	err = tx.QueryRow(ctx, `SELECT (SELECT count(*) FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = 1768187248::oid
			AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())),
		(SELECT count(*) FROM idem.leases e WHERE e.expires_at > clock_timestamp() AND NOT EXISTS (SELECT FROM idem.relays r WHERE r.instance = e.instance))`).
		Scan(&w.Guards, &w.Leased)
	return w, err
}

// UnattendedOperations returns running operations that have been due for longer than old, and that
// no running process owns. Either no process runs a Worker, or no Worker has the definitions of
// these operations.
func UnattendedOperations(ctx context.Context, tx pgx.Tx, old time.Duration) ([]Operation, error) {
	rows, _ := tx.Query(ctx, operations+`WHERE o.state = 'running' AND o.wake_at < clock_timestamp() - make_interval(secs => $1)
		AND (o.owner IS NULL OR o.owner <> ALL (running.instances)) ORDER BY o.wake_at LIMIT $2`, old.Seconds(), maxListed) // CollectRows returns the error
	return pgx.CollectRows(rows, scanOperation)
}

// Mark is a position in a list of operations, at which the next page begins.
type Mark struct {
	At time.Time // zero if the list is in the order of ids
	ID string
}

// beginning is the position before all operations.
var beginning = Mark{At: time.Unix(0, 0), ID: "00000000-0000-0000-0000-000000000000"}

// scanOrders has, for each state, the column by which operations are scanned. For parked and
// running operations there is an index on that column. No index has the time at which an operation
// ended, so for the other states all operations are scanned by id.
var scanOrders = map[string]string{Parked: "since", Running: "wake_at", Completed: "", Failed: "", UndoneState: ""}

// UndoneState is the state of an operation that ended in an error or was canceled, and was undone.
const UndoneState = "undone"

// OperationsPage returns up to limit operations of a state after a mark. Parked operations are in
// the order in which their step began, running operations in the order in which they are due, and
// others in the order of their ids. It scans at most MaxScanned operations. next is the mark for
// the next call, or nil if there are no more operations.
//
// If few of the scanned operations match state and name, a page can be short or empty although
// there is a next page.
func OperationsPage(ctx context.Context, tx pgx.Tx, state, name string, after *Mark, limit int) (found []Operation, next *Mark, err error) {
	at, known := scanOrders[state]
	if !known {
		return nil, nil, errors.New("record: there is no state " + state)
	}
	if after == nil {
		after = &beginning
	}
	// scanned is the subquery for the operations of this scan. A scan by id does not need parameter
	// 1, but its condition mentions it, because the server must know the type of each parameter.
	order, where := "id", "id > $2::text::uuid AND $1::timestamptz IS NOT NULL"
	if at != "" {
		order, where = at+", id", "state = '"+state+"' AND ("+at+", id) > ($1::timestamptz, $2::text::uuid)"
	}
	scanned := "(SELECT * FROM idem.operations WHERE " + where + " ORDER BY " + order + " LIMIT $3)"
	// One operation more than limit shows whether there are more.
	rows, _ := tx.Query(ctx, replaced(operations, "idem.operations o,", scanned+" AS o,")+
		"WHERE o.state = $4 AND ($5 = '' OR o.name = $5) ORDER BY "+replaced(order, "since", "o.since", "wake_at", "o.wake_at", "id", "o.id")+" LIMIT $6",
		after.At, after.ID, int64(MaxScanned), state, name, int64(limit+1)) // CollectRows returns the error
	if found, err = pgx.CollectRows(rows, scanOperation); err != nil {
		return nil, nil, err
	}
	if len(found) > limit {
		found = found[:limit]
		last := &found[limit-1]
		return found, &Mark{map[string]time.Time{"since": last.Since, "wake_at": last.WakeAt}[at], last.ID}, nil
	}
	// All matching operations of the scan were returned. Read the last row of the scan. If it has
	// fewer than MaxScanned rows, it has reached the end.
	if at == "" {
		at = "'epoch'::timestamptz"
	}
	var end Mark
	err = tx.QueryRow(ctx, "SELECT "+at+", id::text FROM "+scanned+" AS o OFFSET $4", after.At, after.ID, int64(MaxScanned), int64(MaxScanned-1)).Scan(&end.At, &end.ID)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return found, nil, nil
	case err != nil:
		return nil, nil, err
	}
	return found, &end, nil
}
