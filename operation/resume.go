package operation

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/longcall"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// What another engine than a Worker needs: one that has queues of its own, and asks for operations one by one.

// Pending is an operation that is due, or was sent the signal that it awaits, and that no process works on who is there.
type Pending struct {
	ID    string
	Name  string
	Epoch int // grows whenever a process takes it up
}

// Due returns the operations of these names that a Worker would take up, the longest due first, and limit of them at most. Those
// of but are left out, in the epochs that are given, so that some that do not get on do not hide the others. It takes none of
// them up: by the time of a Resume another process may have.
func Due(ctx context.Context, pool *pgxpool.Pool, names []string, limit int, but ...Pending) ([]Pending, error) {
	if pool == nil {
		return nil, errors.New("operation: pool is nil")
	}
	due := store.DueOperations{Names: names, Room: limit}
	for _, p := range but {
		due.But = append(due.But, store.Due{OperationID: p.ID, Epoch: p.Epoch})
	}
	engine := txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
	if err := engine.Query(ctx, &due); err != nil {
		return nil, err
	}
	pending := make([]Pending, len(due.Due))
	for i, d := range due.Due {
		pending[i] = Pending{ID: d.OperationID, Name: d.Name, Epoch: d.Epoch}
	}
	return pending, nil
}

// Resume goes on with the operation of that id, from what is on record, if it is due and no process works on it. It begins none, and
// waits for no other call. The options are those that matter to work that no caller waits for: idem.WithSealer above all.
//
// It returns nil if the operation has ended, by this call or before, whatever its answer is. The error is idem.ErrInProgress if
// another process works on it, or if it waits; ErrParked if a person has to decide; ErrUnknownOperation if there is none of that id.
// An error that is Final, and ErrCancelled, have ended it: it is undone, and its key is free. After any other error it goes on later.
func (d *Definition[In]) Resume(ctx context.Context, pool *pgxpool.Pool, id string, opts ...idem.Option) error {
	if d.err != nil {
		return d.err
	}
	if pool == nil {
		return errors.New("operation: pool is nil")
	}
	if err := idem.CheckOptions(opts...); err != nil {
		return err
	}
	id, err := parsedID(id)
	if err != nil {
		return err
	}
	return resumed(id, (&work{definition: &d.definition, operation: id}).resume(ctx, pool, opts))
}

// resume takes the operation up, and goes on with it.
func (w *work) resume(ctx context.Context, pool *pgxpool.Pool, opts []idem.Option) longcall.Ending {
	t, end := w.take(ctx, &txn.Engine{Pool: pool, Limits: txn.DefaultLimits})
	if t == nil {
		return end
	}
	call, err := door.Settings(pool, t.Scope, t.Key, t.Hash, t.TTL, opts)
	if err != nil { // the options were checked before
		w.instance.leave(w.operation, true)
		return w.abandon(longcall.Ending{Outcome: longcall.Failed, Err: err})
	}
	w.call = call
	return w.goOn(ctx, &t.Taken, &t.steps)
}

// resumed is what a Resume says.
func resumed(id string, end longcall.Ending) error {
	switch {
	case end.Outcome == longcall.Recorded, end.Outcome == longcall.Ended, end.Outcome == longcall.Freed:
		return nil
	case end.Outcome == longcall.Elsewhere && end.Err == nil:
		return &idem.InProgressError{Key: "of operation " + id, RetryAfter: time.Second}
	}
	return end.Err
}
