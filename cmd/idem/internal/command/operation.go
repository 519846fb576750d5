package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/operation"
)

type operationCommand struct {
	List    operationListCommand    `cmd:"" help:"List operations, the latest first."`
	Show    operationShowCommand    `cmd:"" help:"Show one operation, with a timeline of its steps."`
	History operationHistoryCommand `cmd:"" help:"Write the history of one operation, for idemtest.Replay."`
	Retry   operationRetryCommand   `cmd:"" help:"Resume a parked operation."`
	Resolve operationResolveCommand `cmd:"" help:"Record the outcome of a call that is in doubt."`
	Cancel  operationCancelCommand  `cmd:"" help:"End an operation, and undo its steps."`
}

// operationID has the argument that identifies an operation.
type operationID struct {
	ID string `arg:"" help:"Operation id, as idem operation list, idem stuck and idem show print it."`
}

// find returns the operation, and fails if it does not exist. If work is not nil, find calls it in
// the same transaction to read more.
func (c *operationID) find(s *session, work func(context.Context, pgx.Tx, *record.Operation) error) (*record.Operation, error) {
	var id pgtype.UUID
	if id.Scan(c.ID) != nil {
		return nil, usage("%q is not an operation id", page.Safe(c.ID))
	}
	found, err := queryTx(s, func(ctx context.Context, tx pgx.Tx) (*record.Operation, error) {
		found, err := record.FindOperation(ctx, tx, id.String())
		if err == nil && found != nil && work != nil {
			err = work(ctx, tx, found)
		}
		return found, err
	})
	if err == nil && found == nil {
		err = noRecord("there is no operation %s: it was a single transaction, or it was purged with its record; idem list has records", id.String())
	}
	return found, err
}

type operationListCommand struct {
	Scope string `placeholder:"PREFIX" help:"Scopes with this prefix."`
	Name  string `placeholder:"NAME" help:"Of this definition."`
	State string `enum:",running,parked,completed,failed,undone" default:"" placeholder:"STATE" help:"running, parked, completed, failed (rejected, and undone) or undone (ended in an error or canceled)."`
	Older span   `placeholder:"SPAN" help:"Begun longer ago than this."`
	limitFlag
	afterFlag
	fullFlag
	sealKeys
}

// operationTable shows why an operation does not proceed: the reason why it is parked, or its last
// error.
var operationTable = table[record.Operation]{
	"no operations",
	page.Columns("OPERATION ID", "NAME", "STATE", "STEP", ">AGE", "SCOPE", "KEY", "REASON", "LAST ERROR"),
	func(p *page.Page, o *record.Operation) []string {
		return []string{o.ID, page.Safe(o.Name), operationState(p, o), page.Safe(o.Step), page.Age(o.Now.Sub(o.CreatedAt)),
			page.Safe(o.Scope), page.Safe(o.Key), reasonOf(o), lastErrorOf(o)}
	},
}

// Run lists operations. The mark for --after is the id of the last operation in the list. The next
// list reads the creation time of that operation, and continues with operations created before it.
func (c *operationListCommand) Run(s *session) error {
	if c.After != "" && new(pgtype.UUID).Scan(c.After) != nil {
		return usage("--after must be a mark that the end of a list printed")
	}
	sealer, err := c.sealer(s)
	if err != nil {
		return err
	}
	mark := func(o *record.Operation) string { return o.ID }
	return showList(s, c.Limit, "operations", &operationTable, mark, func(ctx context.Context, tx pgx.Tx, limit int) ([]record.Operation, error) {
		found, err := record.ListOperations(ctx, tx, record.OperationFilter{
			ScopePrefix: c.Scope, Name: c.Name, State: c.State, Older: time.Duration(c.Older), Before: c.After, Limit: limit,
		})
		openOperations(found, sealer, c.Full)
		return found, err
	})
}

// openOperations decrypts the last errors, and abridges the keys unless whole is true. If sealer is
// nil, the text of a sealed error stays "sealed".
func openOperations(all []record.Operation, sealer idem.Sealer, whole bool) {
	record.OpenErrors(all, sealer)
	for i := range all {
		abridge(&all[i].Key, whole)
	}
}

// maxCellLength is the maximum length of a reason or an error in a table, in characters.
const maxCellLength = 200

// reasonOf returns why an operation is parked: the code and the text. It returns "" if the
// operation is not parked.
func reasonOf(o *record.Operation) string {
	if o.Reason == "" {
		return ""
	}
	return page.Safe(o.Reason + ": " + page.Clipped(o.ReasonText, maxCellLength))
}

// lastErrorOf describes the last error of an operation in one line, or returns "".
func lastErrorOf(o *record.Operation) string {
	if o.LastError == nil {
		return ""
	}
	return fmt.Sprintf("%s: %s", attemptOf(o), page.Safe(page.Clipped(o.LastError.Text, maxCellLength)))
}

// attemptOf says which attempt failed last, when it failed, and when the next one begins. If the
// error names no step, the function of the operation returned it.
func attemptOf(o *record.Operation) string {
	e := o.LastError
	what := fmt.Sprintf("run %d of the function", e.Attempt)
	if e.Step != "" {
		what = fmt.Sprintf("attempt %d of step %s", e.Attempt, page.Safe(e.Step))
	}
	what += ", " + page.Relative(e.At, o.Now)
	if e.NextAt != nil && o.State == record.Running {
		what += ", next " + page.Relative(*e.NextAt, o.Now)
	}
	return what
}

// operationState returns the state of an operation for display. It adds "undoing" or "canceled"
// until the operation has ended.
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

// printOperations prints a title, a table of operations, and the remedy. It prints nothing if there
// are no operations.
func printOperations(p *page.Page, title, remedy string, all []record.Operation) {
	if len(all) == 0 {
		return
	}
	p.Printf("%s\n", p.Bold(title))
	(&table[record.Operation]{
		columns: page.Columns("OPERATION ID", "NAME", "STEP", ">SINCE", "REASON", "LAST ERROR"),
		row: func(_ *page.Page, o *record.Operation) []string {
			return []string{o.ID, page.Safe(o.Name), page.Safe(o.Step), page.Age(o.Now.Sub(o.Since)), reasonOf(o), lastErrorOf(o)}
		},
	}).print(p, all)
	p.Printf("%s\n\n", page.Wrap(remedy, "  ", 100))
}

type operationHistoryCommand struct {
	operationID
	sealKeys
}

// Run writes the history to standard output.
func (c *operationHistoryCommand) Run(s *session) error {
	sealer, err := c.sealer(s)
	if err != nil {
		return err
	}
	found, err := c.find(s, nil)
	if err != nil {
		return err
	}
	var opts []idem.Option
	if sealer != nil {
		opts = append(opts, idem.WithSealer(sealer))
	}
	ctx, cancel := context.WithTimeout(s.ctx, changeTimeout)
	defer cancel()
	history, err := operation.History(ctx, s.pool, found.ID, opts...)
	switch {
	case errors.Is(err, operation.ErrUnknownOperation):
		return noRecord("operation %s was purged meanwhile", found.ID)
	case errors.Is(err, idem.ErrUnreadable):
		return errors.Join(err, errors.New("give its keys with --seal-keys or IDEM_SEAL_KEYS"))
	case err != nil:
		return err
	}
	_, err = s.Stdout.Write(history)
	return err
}

// shownSteps joins the names of steps for display.
func shownSteps(names []string) string { return page.Safe(strings.Join(names, ", ")) }
