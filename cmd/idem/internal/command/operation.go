package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/txn"
	"github.com/idem-go/idem/operation"
)

type operationCommand struct {
	List    operationListCommand    `cmd:"" help:"Operations, the latest first."`
	Show    operationShowCommand    `cmd:"" help:"One operation, with a timeline of its steps."`
	History operationHistoryCommand `cmd:"" help:"The history of one operation, for idemtest.Replay."`
	Retry   operationRetryCommand   `cmd:"" help:"Let a parked operation go on as it is."`
	Resolve operationResolveCommand `cmd:"" help:"Say the outcome of the call that has parked an operation."`
	Cancel  operationCancelCommand  `cmd:"" help:"End an operation, and take back what it has done."`
}

// Help says more.
func (operationCommand) Help() string {
	return `Operations are work of several steps, as package operation does it. One that is parked waits for a person: show tells why.

Example: idem operation list --state parked`
}

// operationID is the operation that a command is about.
type operationID struct {
	ID string `arg:"" help:"Operation id: idem operation list, idem stuck and idem show tell it."`
}

// find returns the operation, and lets work read more about it.
func (c *operationID) find(s *session, work func(context.Context, pgx.Tx, *record.Operation) error) (found *record.Operation, err error) {
	var id pgtype.UUID
	if id.Scan(c.ID) != nil {
		return nil, usage("%q is no operation id", page.Safe(c.ID))
	}
	err = s.limited(func(ctx context.Context, tx pgx.Tx) (err error) {
		if found, err = record.FindOperation(ctx, tx, id.String()); err != nil || found == nil || work == nil {
			return err
		}
		return work(ctx, tx, found)
	})
	if err == nil && found == nil {
		err = noRecordError{"there is no operation " + id.String() + ": it was one transaction, or was purged with its record; idem list has records"}
	}
	return found, err
}

// change asks, and does what a person wants of an operation.
func (c *operationID) change(s *session, o *record.Operation, agreed *accountable, will, done string, do func(context.Context) error) error {
	will = fmt.Sprintf("%s (operation %s %s, %s at step %s)", will, page.Safe(o.Name), o.ID, o.State, page.Safe(o.Step))
	if err := agreed.ask(s, will); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(agreed.onRecord(s), changeTimeout)
	defer cancel()
	err := do(ctx)
	switch {
	case errors.Is(err, operation.ErrUnknownOperation):
		return noRecordError{"operation " + o.ID + " was purged meanwhile: nothing was changed"}
	case errors.Is(err, operation.ErrNotParked):
		return refusedError{fmt.Sprintf("operation %s has gone on meanwhile, or is at another step, and nothing was changed (%v): see idem operation show %s", o.ID, err, o.ID)}
	case errors.As(err, new(*txn.UnknownError)):
		return fmt.Errorf("%w: idem operation show %s tells which", record.ErrUnknown, o.ID)
	case err != nil:
		return err
	}
	return s.show(shownChange{o.ID, done}, func(p *page.Page) { p.Printf("%s: idem operation show %s tells how it goes on\n", done, o.ID) })
}

// shownChange is what was done to an operation, in JSON.
type shownChange struct {
	ID   string `json:"operation_id"`
	Done string `json:"done"`
}

// parked refuses to go on with an operation that is not.
func parked(o *record.Operation) error {
	if o.State != record.Parked {
		return refusedError{fmt.Sprintf("nothing was changed: operation %s is not parked, it is %s", o.ID, o.State)}
	}
	return nil
}
