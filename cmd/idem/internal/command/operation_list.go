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
	State  string `enum:",running,parked,completed,failed,undone" default:"" placeholder:"STATE" help:"running, parked, completed, failed (rejected, and undone) or undone (ended in an error or canceled)."`
	Older  span   `placeholder:"SPAN" help:"Begun longer ago than this."`
	Limit  int    `default:"50" help:"How many at most, up to 10000. Default: ${default}."`
	Before string `placeholder:"ID" help:"Go on behind this operation id: the last one that was listed."`
	Full   bool   `help:"Show whole keys."`
	sealKeys
}

// Help implements kong.HelpProvider.
func (operationListCommand) Help() string {
	return `Lists operations, the latest first, up to --limit. No index has that order, so the whole table is read, until --timeout: purge keeps it
small. The last error of an operation is shown if there was one since its last progress. An error that is sealed takes the keys.

Example: idem operation list --name checkout --state parked`
}

// Run lists operations.
func (c *operationListCommand) Run(s *session) error {
	if c.Limit < 1 || c.Limit > 10000 {
		return usage("--limit is between 1 and 10000: go on with --before")
	}
	if c.Before != "" && new(pgtype.UUID).Scan(c.Before) != nil {
		return usage("%q is no operation id", page.Safe(c.Before))
	}
	sealer, err := c.sealer(s)
	if err != nil {
		return err
	}
	var found []record.Operation
	err = s.limited(func(ctx context.Context, tx pgx.Tx) (err error) {
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
	record.OpenErrors(found, sealer)
	shown := shownOperationList{newShownOperations(found, c.Full), more}
	return s.show(shown, func(p *page.Page) { c.text(p, found, more) })
}

// shownOperationList is the JSON of the list.
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
			page.Safe(o.Scope), shownKey(o.Key, c.Full), reasonOf(o), lastErrorOf(o)})
	}
	p.Table([]page.Column{{Name: "OPERATION ID"}, {Name: "NAME"}, {Name: "STATE"}, {Name: "STEP"}, {Name: "AGE", Right: true}, {Name: "SCOPE"}, {Name: "KEY"},
		{Name: "REASON"}, {Name: "LAST ERROR"}}, rows)
	if more {
		p.Printf("%s\n", p.Dim(fmt.Sprintf("there are more: --before %s (%d shown)", found[len(found)-1].ID, len(found))))
	}
}

// longestCell is the maximum number of characters of a cell.
const longestCell = 200

// reasonOf returns the reason code and sentence of a parked operation in one line.
func reasonOf(o *record.Operation) string {
	if o.Reason == "" {
		return ""
	}
	return page.Safe(o.Reason + ": " + clipped(o.ReasonText, longestCell))
}

// lastErrorOf returns the last error of an operation in one line.
func lastErrorOf(o *record.Operation) string {
	e := o.LastError
	if e == nil {
		return ""
	}
	return fmt.Sprintf("%s: %s", attemptOf(o), page.Safe(clipped(e.Text, longestCell)))
}

// attemptOf describes the attempt that failed last, and the time of the next one.
func attemptOf(o *record.Operation) string {
	e := o.LastError
	what := fmt.Sprintf("run %d of the function", e.Attempt)
	if e.Step != "" {
		what = fmt.Sprintf("attempt %d of step %s", e.Attempt, page.Safe(e.Step))
	}
	what += ", " + relative(e.At, o.Now)
	if e.NextAt != nil && o.State == record.Running {
		what += ", next " + relative(*e.NextAt, o.Now)
	}
	return what
}

// clipped returns text cut to limit characters.
func clipped(text string, limit int) string {
	for at := range text {
		if limit--; limit < 0 {
			return text[:at] + "…"
		}
	}
	return text
}

// operationState returns the state of an operation as people see it.
func operationState(p *page.Page, o *record.Operation) string {
	state := o.State
	if o.State == record.Parked {
		state = p.Red(state)
	}
	switch {
	case o.EndedAt != nil:
	case o.Undoing:
		state += ", undoing"
	case o.Canceled:
		state += ", canceled"
	}
	return state
}
