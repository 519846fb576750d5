package record

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// Mark is a position in a list of operations, at which the next portion begins.
type Mark struct {
	At time.Time // zero if the list is in the order of ids
	ID string
}

// first is the position before all operations.
var first = Mark{At: time.Unix(0, 0), ID: "00000000-0000-0000-0000-000000000000"}

// walks is the order in which the operations of a state are scanned. Each order has an index. No
// index knows when an operation ended, so operations that have ended are scanned by id.
var walks = map[string]struct{ where, at string }{
	Parked:      {"state = 'parked'", "since"},
	Running:     {"state = 'running'", "wake_at"},
	Completed:   {"true", ""},
	Failed:      {"true", ""},
	UndoneState: {"true", ""},
}

// UndoneState is the state of an operation that ended in an error or was canceled, and was undone.
const UndoneState = "undone"

// OperationsPortion returns up to limit operations of a state after a mark. Parked operations are
// in the order in which their step began, running operations in the order in which they are due,
// and others in the order of their ids. It scans at most Reach operations. The returned mark is the
// position for the next call. It is nil if there are no more operations.
//
// The limit on the scan matters if few of the scanned operations match state and name. Then a
// portion can be short, or empty, and still have a mark.
func OperationsPortion(ctx context.Context, tx pgx.Tx, state, name string, after *Mark, limit int) (found []Operation, next *Mark, err error) {
	walk, known := walks[state]
	if !known {
		return nil, nil, errors.New("record: there is no state " + state)
	}
	if after == nil {
		after = &first
	}
	// portion is the scan. Parameter 1 is unused in the order of ids. The condition names it all
	// the same, because the server has to know the type of each parameter.
	order, behind := "id", "id > $2::text::uuid AND $1::timestamptz IS NOT NULL"
	if walk.at != "" {
		order, behind = walk.at+", id", "("+walk.at+", id) > ($1::timestamptz, $2::text::uuid)"
	}
	portion := "(SELECT * FROM idem.operations WHERE " + walk.where + " AND " + behind + " ORDER BY " + order + " LIMIT $3)"
	// One operation more than limit shows whether there are more.
	rows, err := tx.Query(ctx, replaced(operations, "idem.operations o,", portion+" AS o,")+
		"WHERE o.state = $4 AND ($5 = '' OR o.name = $5) ORDER BY "+replaced(order, "since", "o.since", "wake_at", "o.wake_at", "id", "o.id")+" LIMIT $6",
		after.At, after.ID, int64(Reach), state, name, int64(limit+1))
	if err != nil {
		return nil, nil, err
	}
	if found, err = pgx.CollectRows(rows, scanOperation); err != nil {
		return nil, nil, err
	}
	if len(found) > limit {
		found = found[:limit]
		last := &found[limit-1]
		return found, &Mark{map[string]time.Time{"since": last.Since, "wake_at": last.WakeAt}[walk.at], last.ID}, nil
	}
	// All matching operations of the scan were returned. Read the last row of the scan. If it has
	// fewer than Reach rows, it has reached the end.
	at := walk.at
	if at == "" {
		at = "'epoch'::timestamptz"
	}
	var end Mark
	err = tx.QueryRow(ctx, "SELECT "+at+", id::text FROM "+portion+" AS o OFFSET $4", after.At, after.ID, int64(Reach), int64(Reach-1)).Scan(&end.At, &end.ID)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return found, nil, nil
	case err != nil:
		return nil, nil, err
	}
	return found, &end, nil
}
