package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/txn"
	"github.com/idem-go/idem/operation"
)

// chosenOperations are the operations that are to be changed: one by its id, or many by what they have in common.
type chosenOperations struct {
	ID     string `arg:"" optional:"" help:"Operation id: idem operation list, idem stuck and idem show tell it."`
	All    bool   `help:"Instead of an id: all that the filters let through, up to --limit."`
	Name   string `placeholder:"NAME" help:"With --all: of this definition."`
	Step   string `placeholder:"STEP" help:"With --all: at this step."`
	Scope  string `placeholder:"PREFIX" help:"With --all: scopes that begin like this."`
	Older  span   `placeholder:"SPAN" help:"With --all: begun longer ago than this."`
	Limit  int    `default:"1000" help:"With --all, how many at most, up to 10000. Default: ${default}."`
	DryRun bool   `help:"With --all: list them, and change nothing."`
	accountable
}

// check refuses what contradicts itself.
func (c *chosenOperations) check() error {
	filtered := c.Name != "" || c.Step != "" || c.Scope != "" || c.Older != 0
	switch {
	case (c.ID == "") != c.All:
		return usage("say either an operation id or --all")
	case c.All && !filtered:
		return usage("--all wants a filter: --name, --step, --scope or --older")
	case !c.All && (filtered || c.DryRun):
		return usage("--name, --step, --scope, --older and --dry-run go with --all")
	case c.Limit < 1 || c.Limit > 10000:
		return usage("--limit is between 1 and 10000: run the command again for more")
	}
	return nil
}

// one is the operation that was named.
func (c *chosenOperations) one() *operationID { return &operationID{c.ID} }

// changeAll asks once, and then changes each of the operations until one fails. An operation that has gone on since it was listed is left alone.
func (c *chosenOperations) changeAll(s *session, state, will, done string, do func(ctx context.Context, id string) error) error {
	var found []record.Operation
	err := s.limited(func(ctx context.Context, tx pgx.Tx) (err error) {
		found, err = record.ListOperations(ctx, tx, record.OperationFilter{
			ScopePrefix: c.Scope, Name: c.Name, Step: c.Step, State: state, Older: time.Duration(c.Older), Limit: c.Limit,
		})
		return err
	})
	switch {
	case err != nil:
		return err
	case len(found) == 0:
		return noRecordError{"no " + state + " operation fits: idem operation list shows those that there are"}
	case c.DryRun:
		return s.show(shownChanges{Operations: newShownOperations(found, false)}, func(p *page.Page) {
			p.Printf("this "+will+":\n", len(found))
			for i := range found {
				p.Printf("  %s  %s, at step %s\n", found[i].ID, page.Safe(found[i].Name), page.Safe(found[i].Step))
			}
		})
	}
	if err := c.ask(s, fmt.Sprintf(will, len(found))); err != nil {
		return err
	}
	ctx := c.onRecord(s)
	changed := []record.Operation{}
	for i := range found {
		switch err := changeOne(ctx, found[i].ID, do); {
		case err == nil:
			changed = append(changed, found[i])
		case errors.Is(err, operation.ErrNotParked), errors.Is(err, operation.ErrUnknownOperation):
		default:
			s.progress("")
			return fmt.Errorf("%w; before that, %d of %d were %s", err, len(changed), len(found), done)
		}
		s.progress("%d of %d", i+1, len(found))
	}
	s.progress("")
	return s.show(shownChanges{true, newShownOperations(changed, false)}, func(p *page.Page) {
		p.Printf("%d of %d %s\n", len(changed), len(found), done)
	})
}

func changeOne(ctx context.Context, id string, do func(ctx context.Context, id string) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	err := do(bounded, id)
	if errors.As(err, new(*txn.UnknownError)) {
		return fmt.Errorf("%w: idem operation show %s tells which", record.ErrUnknown, id)
	}
	return err
}

// shownChanges is what was done to many operations, or with --dry-run would be, in JSON.
type shownChanges struct {
	Done       bool             `json:"done"`
	Operations []shownOperation `json:"operations"`
}
