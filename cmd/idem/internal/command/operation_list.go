package command

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
)

type operationListCommand struct {
	Scope  string `placeholder:"PREFIX" help:"Scopes that begin like this."`
	Name   string `placeholder:"NAME" help:"Of this definition."`
	State  string `enum:",running,parked,completed,failed,undone" default:"" placeholder:"STATE" help:"running, parked, completed, failed (rejected, and undone) or undone (ended in an error)."`
	Older  span   `placeholder:"SPAN" help:"Begun longer ago than this."`
	Limit  int    `default:"50" help:"How many at most, up to 10000. Default: ${default}."`
	Before string `placeholder:"ID" help:"Go on behind this operation id: the last one that was listed."`
	Full   bool   `help:"Show whole keys."`
}

// Help says more.
func (operationListCommand) Help() string {
	return `Reads operations in the order of their beginning, the latest first, up to --limit. No index is in that order, so the whole table is
read, until --timeout: purge keeps it small.

Example: idem operation list --name checkout --state parked`
}

// Run lists.
func (c *operationListCommand) Run(s *session) error {
	if c.Limit < 1 || c.Limit > 10000 {
		return usage("--limit is between 1 and 10000: go on with --before")
	}
	if c.Before != "" && new(pgtype.UUID).Scan(c.Before) != nil {
		return usage("%q is no operation id", page.Safe(c.Before))
	}
	var found []record.Operation
	err := s.limited(func(ctx context.Context, tx pgx.Tx) (err error) {
		found, err = record.ListOperations(ctx, tx, record.OperationFilter{
			ScopePrefix: c.Scope, Name: c.Name, State: c.State, Older: time.Duration(c.Older), Before: c.Before, Limit: c.Limit + 1,
		})
		return err
	})
	if err != nil {
		return err
	}
	more := len(found) > c.Limit
	if more {
		found = found[:c.Limit]
	}
	shown := shownOperationList{newShownOperations(found, c.Full), more}
	return s.show(shown, func(p *page.Page) { c.text(p, found, more) })
}

// shownOperationList is a list in JSON.
type shownOperationList struct {
	Operations []shownOperation `json:"operations"`
	More       bool             `json:"more"`
}

func (c *operationListCommand) text(p *page.Page, found []record.Operation, more bool) {
	if len(found) == 0 {
		p.Printf("no operations\n")
		return
	}
	var rows [][]string
	for i := range found {
		o := &found[i]
		rows = append(rows, []string{o.ID, page.Safe(o.Name), operationState(p, o), page.Safe(o.Step), page.Age(o.Now.Sub(o.CreatedAt)),
			page.Safe(o.Scope), shownKey(o.Key, c.Full)})
	}
	p.Table([]page.Column{{Name: "OPERATION ID"}, {Name: "NAME"}, {Name: "STATE"}, {Name: "STEP"}, {Name: "AGE", Right: true}, {Name: "SCOPE"}, {Name: "KEY"}}, rows)
	if more {
		p.Printf("%s\n", p.Dim(fmt.Sprintf("there are more: --before %s (%d shown)", found[len(found)-1].ID, len(found))))
	}
}

// operationState is the state of an operation as it is told to a person.
func operationState(p *page.Page, o *record.Operation) string {
	state := o.State
	if o.State == record.Parked {
		state = p.Red(state)
	}
	switch {
	case o.EndedAt != nil:
	case o.Undoing:
		state += ", undoing"
	case o.Cancelled:
		state += ", cancelled"
	}
	return state
}
