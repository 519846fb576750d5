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

// chosenOperations selects the operations of a change: one by its ID, or many by filters.
type chosenOperations struct {
	ID     string `arg:"" optional:"" help:"Operation id, as idem operation list, idem stuck and idem show print it."`
	All    bool   `help:"Instead of an id: all that the filters let through, up to --limit."`
	Name   string `placeholder:"NAME" help:"With --all: of this definition."`
	Step   string `placeholder:"STEP" help:"With --all: at this step."`
	Scope  string `placeholder:"PREFIX" help:"With --all: scopes that begin like this."`
	Older  span   `placeholder:"SPAN" help:"With --all: begun longer ago than this."`
	Limit  int    `default:"1000" help:"With --all, how many at most, up to 10000. Default: ${default}."`
	DryRun bool   `help:"With --all: list them, and change nothing."`
	accountable
}

// check fails if the arguments contradict each other.
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

// one returns the operation that the argument names.
func (c *chosenOperations) one() *operationID { return &operationID{c.ID} }

// changeAll asks for consent once and calls do for each selected operation until one fails. An
// operation that has changed in the meantime is skipped. The function preview, which may be nil,
// describes the effects on one operation.
func (c *chosenOperations) changeAll(s *session, state, will, done string, preview func(ctx context.Context, id string) (*operation.CancelPreview, error),
	do func(ctx context.Context, id string) error,
) error {
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
		return noRecordError{"the filters select no " + state + " operation: see idem operation list"}
	}
	// The preview is computed for all operations before the question, so that the user agrees to
	// effects and not to a number.
	previews, err := previewAll(s, found, preview)
	if err != nil {
		return err
	}
	if c.DryRun {
		return s.show(shownChanges{Preview: previews, Operations: newShownOperations(found, false)}, func(p *page.Page) {
			p.Printf("this "+will+":\n", len(found))
			for i := range found {
				p.Printf("  %s  %s, at step %s\n", found[i].ID, page.Safe(found[i].Name), page.Safe(found[i].Step))
			}
			for _, sentence := range previews {
				p.Printf("%s\n", sentence)
			}
		})
	}
	s.preview(c.consent, previews)
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
	return s.show(shownChanges{true, previews, newShownOperations(changed, false)}, func(p *page.Page) {
		p.Printf("%d of %d %s\n", len(changed), len(found), done)
	})
}

// previewAll summarizes the previews of all operations.
func previewAll(s *session, found []record.Operation, preview func(ctx context.Context, id string) (*operation.CancelPreview, error)) ([]string, error) {
	if preview == nil {
		return nil, nil
	}
	var asks, repeats, parks, undoes, keeps int
	for i := range found {
		ctx, cancel := context.WithTimeout(s.ctx, changeTimeout)
		p, err := preview(ctx, found[i].ID)
		cancel()
		switch {
		case errors.Is(err, operation.ErrNotParked), errors.Is(err, operation.ErrUnknownOperation): // the operation has ended
			continue
		case err != nil:
			return nil, err
		}
		asks, repeats, parks = asks+oneIf(p.Asks), repeats+oneIf(p.Repeats), parks+oneIf(p.Parks != "")
		undoes, keeps = undoes+oneIf(len(p.Undos) > 0), keeps+oneIf(len(p.Kept) > 0)
		s.progress("%d of %d", i+1, len(found))
	}
	s.progress("")
	return []string{
		fmt.Sprintf("%d have a step that is undone, and %d have a step that is done and stays, because it has no undo.", undoes, keeps),
		fmt.Sprintf("%d make a call in doubt again under its key, %d ask about one, and %d park with a call in doubt before anything is undone.", repeats, asks, parks),
	}, nil
}

func oneIf(b bool) int {
	if b {
		return 1
	}
	return 0
}

// changeOne calls do for one operation, with a timeout. It names the operation if the outcome of
// the COMMIT is unknown.
func changeOne(ctx context.Context, id string, do func(ctx context.Context, id string) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	err := do(bounded, id)
	if errors.As(err, new(*txn.UnknownError)) {
		return fmt.Errorf("%w: see idem operation show %s", record.ErrUnknown, id)
	}
	return err
}

// shownChanges is the JSON of the operations that were changed or, with --dry-run, would be.
type shownChanges struct {
	Done       bool             `json:"done"`
	Preview    []string         `json:"preview,omitempty"`
	Operations []shownOperation `json:"operations"`
}
