package db

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// WaitsUntil returns when the operation is due. If the operation awaits a child, it returns the
// zero time, because only the end of the child makes the operation due.
func (r *ShowOperationRow) WaitsUntil() time.Time {
	if r.Kind == ChildStep && r.WakeAt.Sub(r.LoadedAt) > Endless/2 {
		return time.Time{}
	}
	return r.WakeAt
}

// MayBeSuspect reports whether the operation is a suspect (see Suspected), or would become a
// suspect if the process that works on it has died.
func (s *ShowOperation) MayBeSuspect() bool {
	return s.Found && s.State == OperationRunning && s.Deaths >= Suspected-1
}

// Except excludes an operation from the result as long as its epoch is the given one.
func (d *DueOperations) Except(operationID string, epoch int) {
	d.But = append(d.But, operationID+"/"+strconv.Itoa(epoch))
}

// IsOperation reports whether an operation has the given id. It reads in the caller's transaction.
func IsOperation(ctx context.Context, in interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, id string) (bool, error) {
	var epoch int
	var canceled, withoutCalling bool
	err := in.QueryRow(ctx, IsCanceledSQL, id).Scan(&epoch, &canceled, &withoutCalling)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// In sends the signal through the caller's pool or transaction.
func (q *SendSignal) In(ctx context.Context, in interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) error {
	return in.QueryRow(ctx, SendSignalSQL, q.Args()...).Scan(&q.Known, &q.Refused, nil)
}

// RefuseUnlessSealed makes the statement refuse the signal if the input of the operation is sealed.
// Callers without a Sealer use it, because they cannot seal the value of the signal.
func (q *SendSignal) RefuseUnlessSealed() { q.Unless = []byte(valueTag) }
