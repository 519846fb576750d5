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
	Retry   operationRetryCommand   `cmd:"" help:"Let a parked operation go on."`
	Resolve operationResolveCommand `cmd:"" help:"Say the outcome of a call that is in doubt."`
	Cancel  operationCancelCommand  `cmd:"" help:"End an operation, and undo what it has done."`
}

// Help implements kong.HelpProvider.
func (operationCommand) Help() string {
	return `Operations are work of several steps: see package operation. A parked operation waits for a person. show says why it is parked.

Example: idem operation list --state parked`
}

// operationID holds the argument for an operation.
type operationID struct {
	ID string `arg:"" help:"Operation id, as idem operation list, idem stuck and idem show print it."`
}

// find returns the operation. If work is not nil, find calls it in the same transaction. It fails
// if the ID is malformed or the operation does not exist.
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

// change asks for consent and calls do for the operation. The preview, which may be nil, describes
// the effects of the change. The text will completes the question, and done describes the result.
func (c *operationID) change(s *session, o *record.Operation, agreed *accountable, preview []string, will, done string, do func(context.Context) error) error {
	will = fmt.Sprintf("%s (operation %s %s, %s at step %s)", will, page.Safe(o.Name), o.ID, o.State, page.Safe(o.Step))
	s.preview(agreed.consent, preview)
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
		return refusedError{fmt.Sprintf("nothing was changed: operation %s has changed since it was read (%v); see idem operation show %s", o.ID, err, o.ID)}
	case errors.As(err, new(*txn.UnknownError)):
		return fmt.Errorf("%w: see idem operation show %s", record.ErrUnknown, o.ID)
	case err != nil:
		return err
	}
	return s.show(shownChange{o.ID, done, preview}, func(p *page.Page) { p.Printf("%s; see idem operation show %s\n", done, o.ID) })
}

// shownChange is the JSON of a change.
type shownChange struct {
	ID      string   `json:"operation_id"`
	Done    string   `json:"done"`
	Preview []string `json:"preview,omitempty"`
}

// preview prints the effects of a change: before the question if there is one, and otherwise before
// the result. The JSON result contains the preview itself.
func (s *session) preview(agreed consent, sentences []string) {
	p := s.page
	if !agreed.Yes && s.InIsTerminal {
		p = page.New(s.Stderr, false)
	} else if s.globals.JSON {
		return
	}
	for _, sentence := range sentences {
		p.Printf("%s\n", page.Wrap(sentence, "", 100))
	}
}

// parked returns a refusedError unless the operation is parked.
func parked(o *record.Operation) error {
	if o.State != record.Parked {
		return refusedError{fmt.Sprintf("nothing was changed: operation %s is not parked, it is %s", o.ID, o.State)}
	}
	return nil
}
