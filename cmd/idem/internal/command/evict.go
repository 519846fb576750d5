package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
)

type evictCommand struct {
	name
	Execution string `required:"" aliases:"operation" placeholder:"ID" help:"Execution id of the record, as idem show tells it: another execution's record is left alone."`
	DryRun    bool   `help:"Say what would be done, and do nothing."`
	accountable
}

// Help implements kong.HelpProvider.
func (evictCommand) Help() string {
	return `Deletes one record. Its effect stays: the next call with the key executes again, so first see to what the execution has done.

Example: idem evict tenant-1/payout 7f3c9a52-0d1e --execution 0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10`
}

// changeTimeout is the timeout for the change of one record, operation or letter.
const changeTimeout = 10 * time.Second

// Run deletes the record.
func (c *evictCommand) Run(s *session) error {
	if err := c.resolve(s); err != nil {
		return err
	}
	var found *record.Record
	var operation *record.Operation
	err := s.limited(func(ctx context.Context, tx pgx.Tx) (err error) {
		if found, err = record.Find(ctx, tx, c.Scope, c.Key, false); err == nil && found != nil && found.State == record.Running {
			operation, err = record.FindOperation(ctx, tx, found.ExecutionID)
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case found == nil:
		return noRecordError{"there is no record of " + c.name.String() + scopeHint(c.Scope)}
	case found.ExecutionID != c.Execution:
		return noRecordError{fmt.Sprintf("the record of %s is that of execution %s, and --execution says another: nothing was changed",
			c.name.String(), found.ExecutionID)}
	}
	if operation != nil && (operation.State == record.Running || operation.State == record.Parked) {
		return refusedError{fmt.Sprintf("nothing was changed: the key is that of operation %s, which is not over; idem operation cancel ends and undoes it", found.ExecutionID)}
	}
	will := fmt.Sprintf("deletes the %s of %s, created %s; %s", describe(found), c.name.String(), relative(found.CreatedAt, found.Now), consequence(found))
	if c.DryRun {
		return s.show(shownEviction{false, newShownRecord(found, false)}, func(p *page.Page) { p.Printf("it %s\n", will) })
	}
	if err := c.ask(s, will); err != nil {
		return err
	}
	return c.evict(s, found)
}

// evict deletes the record in a transaction. It fails if the record has changed since it was read.
func (c *evictCommand) evict(s *session, found *record.Record) error {
	gone := false
	ctx := c.onRecord(s)
	err := record.Change(ctx, s.pool, changeTimeout, func(tx pgx.Tx) (err error) {
		gone, err = record.Evict(ctx, tx, c.Scope, c.Key, c.Execution)
		return err
	})
	if errors.Is(err, record.ErrUnknown) {
		return fmt.Errorf("%w, so the record of %s is deleted or it is not: idem show tells", err, c.name.String())
	}
	if err != nil {
		return err
	}
	if !gone {
		return noRecordError{"the record of " + c.name.String() + " changed meanwhile: nothing was deleted"}
	}
	return s.show(shownEviction{true, newShownRecord(found, false)}, func(p *page.Page) { p.Printf("deleted: %s is new\n", c.name.String()) })
}

// shownEviction is the JSON of the deleted record.
type shownEviction struct {
	Deleted bool         `json:"deleted"`
	Record  *shownRecord `json:"record"`
}

func describe(r *record.Record) string {
	if r.Expired() {
		return "expired record"
	}
	return r.State + " record"
}

// consequence describes what a deletion of the record means for later calls.
func consequence(r *record.Record) string {
	switch {
	case r.Expired():
		return "its key is new already"
	case r.State == record.Processing:
		return "an fn ended its transaction itself, so some of its effect may be committed: the next call executes again"
	case r.State == record.Failed:
		return "it was rejected for good: the next call executes"
	}
	return "its effect is committed and stays: the next call executes a second time"
}
