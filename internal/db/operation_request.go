package db

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// WaitsUntil returns when a process has to look at the operation, zero if it waits for a child, whose end wakes it.
func (r *ShowOperationRow) WaitsUntil() time.Time {
	if r.Kind == ChildStep && r.WakeAt.Sub(r.LoadedAt) > Endless/2 {
		return time.Time{}
	}
	return r.WakeAt
}

// MayBeSuspect reports whether the operation is one, or will be when it turns out that its owner is gone.
func (s *ShowOperation) MayBeSuspect() bool {
	return s.Found && s.State == OperationRunning && s.Deaths >= Suspected-1
}

// Except leaves out an operation that is due in an epoch.
func (d *DueOperations) Except(operationID string, epoch int) {
	d.But = append(d.But, operationID+"/"+strconv.Itoa(epoch))
}

// ReleaseTaken returns the request that releases operations that were taken up, and that nothing was done about.
func ReleaseTaken(taken []Taken) ReleaseOperations {
	var r ReleaseOperations
	for i := range taken {
		r.OperationIDs, r.Epochs = append(r.OperationIDs, taken[i].OperationID), append(r.Epochs, taken[i].Epoch)
	}
	return r
}

// IsOperation reports whether an id is that of an operation, by a query in a transaction of the caller's.
func IsOperation(ctx context.Context, in interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, id string) (bool, error) {
	var canceled, withoutCalling bool
	err := in.QueryRow(ctx, IsCanceledSQL, id).Scan(&canceled, &withoutCalling)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// In sends the signal through what the caller has: a pool, or a transaction of its own.
func (q *SendSignal) In(ctx context.Context, in interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) error {
	return in.QueryRow(ctx, SendSignalSQL, q.Args()...).Scan(&q.Known, &q.Refused, nil)
}

// RefuseUnlessSealed has the signal refused if the operation is sealed: no Sealer has seen the value.
func (q *SendSignal) RefuseUnlessSealed() { q.Unless = []byte(valueTag) }
