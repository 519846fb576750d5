package record

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// Mark is the position between two portions of operations.
type Mark struct {
	At time.Time // zero if the order is by ID
	ID string
}

// first is the position before all operations.
var first = Mark{At: time.Unix(0, 0), ID: "00000000-0000-0000-0000-000000000000"}

// walks defines the order in which OperationsPortion reads the operations of a state. Each order
// has an index. No index is ordered by the time at which operations ended, so ended operations are
// read by ID.
var walks = map[string]struct{ where, at string }{
	Parked:      {"state = 'parked'", "since"},
	Running:     {"state = 'running'", "wake_at"},
	Completed:   {"true", ""},
	Failed:      {"true", ""},
	UndoneState: {"true", ""},
}

// UndoneState is the state of an operation that failed and was undone.
const UndoneState = "undone"

// OperationsPortion returns up to limit operations of a state that come after a mark.
//
// Parked operations are ordered by the beginning of their step, running ones by the time at which
// they are due, others by ID. The query examines at most Reach rows, because the name and the state
// may exclude most of them. If there may be more operations, OperationsPortion also returns the
// mark for the next call. A portion with a mark may be shorter than limit, or empty.
func OperationsPortion(ctx context.Context, tx pgx.Tx, state, name string, after *Mark, limit int) (found []Operation, next *Mark, err error) {
	walk, known := walks[state]
	if !known {
		return nil, nil, errors.New("record: there is no state " + state)
	}
	if after == nil {
		after = &first
	}
	order, behind := "id", "id > $2::text::uuid AND $1::timestamptz IS NOT NULL"
	if walk.at != "" {
		order, behind = walk.at+", id", "("+walk.at+", id) > ($1::timestamptz, $2::text::uuid)"
	}
	portion := "(SELECT * FROM idem.operations WHERE " + walk.where + " AND " + behind + " ORDER BY " + order + " LIMIT $3)"
	rows, err := tx.Query(ctx, replaced(operations, "idem.operations o,", portion+" AS o,")+
		"WHERE o.state = $4 AND ($5 = '' OR o.name = $5) ORDER BY "+replaced(order, "since", "o.since", "wake_at", "o.wake_at", "id", "o.id")+" LIMIT $6",
		after.At, after.ID, int64(Reach), state, name, int64(limit+1))
	if err != nil {
		return nil, nil, err
	}
	if found, err = pgx.CollectRows(rows, scanOperation); err != nil {
		return nil, nil, err
	}
	// The query asked for one operation more than the caller, to learn whether there are more.
	if len(found) > limit {
		found = found[:limit]
		last := &found[limit-1]
		return found, &Mark{map[string]time.Time{"since": last.Since, "wake_at": last.WakeAt}[walk.at], last.ID}, nil
	}
	at := walk.at
	if at == "" {
		at = "'epoch'::timestamptz"
	}
	// The portion had no more matches. If it had the full Reach rows, the next portion begins after
	// its last row, whether that row matched or not.
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
