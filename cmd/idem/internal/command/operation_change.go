package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/operation"
)

// operationSelection has the flags that select the operations to change.
type operationSelection struct {
	batch
	Name  string `placeholder:"NAME" help:"With --all: of this definition."`
	Step  string `placeholder:"STEP" help:"With --all: at this step."`
	Scope string `placeholder:"PREFIX" help:"With --all: scopes with this prefix."`
	Older span   `placeholder:"SPAN" help:"With --all: begun longer ago than this."`
}

// choose returns the selected operations, and fails if there are none. With --all it selects only
// operations in the given state. An operation that is selected by its id may also be in one of the
// additional states.
//
// An operation may be resumed between this selection and the person's confirmation. Therefore
// package operation checks the state again in the transaction of the change.
func (c *operationSelection) choose(s *session, state string, also ...string) ([]record.Operation, error) {
	filtered := c.Name != "" || c.Step != "" || c.Scope != "" || c.Older != 0
	if err := c.check(filtered, "--name, --step, --scope or --older"); err != nil {
		return nil, err
	}
	if !c.All {
		if filtered {
			return nil, usage("--name, --step, --scope and --older need --all")
		}
		one, err := (&operationID{c.ID}).find(s, nil)
		if err == nil && !slices.Contains(append(also, state), one.State) {
			err = unchanged("nothing was changed: operation %s is %s", one.ID, one.State)
		}
		if err != nil {
			return nil, err
		}
		abridge(&one.Key, false)
		return []record.Operation{*one}, nil
	}
	found, err := queryTx(s, func(ctx context.Context, tx pgx.Tx) ([]record.Operation, error) {
		return record.ListOperations(ctx, tx, record.OperationFilter{
			ScopePrefix: c.Scope, Name: c.Name, Step: c.Step, State: state, Older: time.Duration(c.Older), Limit: c.Limit,
		})
	})
	if err == nil && len(found) == 0 {
		err = noRecord("the filters select no %s operation: see idem operation list", state)
	}
	openOperations(found, nil, false)
	return found, err
}

// changeOperations asks for confirmation and calls do for each operation. It skips an operation
// that was purged or resumed since it was read.
func changeOperations(
	s *session, b *batch, found []record.Operation, will, done string, preview []string, do func(context.Context, *record.Operation) error,
) error {
	return change(s, b, found, &changeSpec[record.Operation]{
		kind: "operations", will: will, done: done, table: &operationTable, preview: preview,
		name: func(o *record.Operation) string {
			return fmt.Sprintf("operation %s (%s, %s at step %s)", o.ID, page.Safe(o.Name), o.State, orDash(o.Step))
		},
		do: func(ctx context.Context, o *record.Operation) error {
			err := do(ctx, o)
			switch {
			case errors.Is(err, operation.ErrUnknownOperation):
				return skippedError{noRecord("nothing was changed: operation %s was purged meanwhile", o.ID)}
			case errors.Is(err, operation.ErrNotParked):
				return skippedError{unchanged("nothing was changed: operation %s has changed since it was read (%v)", o.ID, err)}
			}
			return err
		},
	})
}

type operationRetryCommand struct{ operationSelection }

// Run retries the selected operations.
func (c *operationRetryCommand) Run(s *session) error {
	found, err := c.choose(s, record.Parked)
	if err != nil {
		return err
	}
	return changeOperations(s, &c.batch, found, "retries", "retried", nil, func(ctx context.Context, o *record.Operation) error {
		return operation.Retry(ctx, s.pool, o.ID)
	})
}

// operationCancelCommand has two flags for special cases. --without-calling is for an outside call
// in doubt that must not be repeated. --without-code is for code that keeps failing or no longer
// fits the recorded steps.
type operationCancelCommand struct {
	operationSelection
	State          string `enum:"parked,running" default:"parked" placeholder:"STATE" help:"With --all: parked or running. Default: ${default}."`
	WithoutCalling bool   `help:"Make no call in doubt again: the operation parks, and resolve records the outcome."`
	WithoutCode    bool   `help:"End it even if its code has changed or keeps failing. Recorded steps that the code does not reach are not undone."`
}

// Run cancels the selected operations.
func (c *operationCancelCommand) Run(s *session) error {
	found, err := c.choose(s, c.State, record.Parked, record.Running)
	if err != nil {
		return err
	}
	var opts []operation.CancelOption
	if c.WithoutCalling {
		opts = append(opts, operation.WithoutCalling())
	}
	if c.WithoutCode {
		opts = append(opts, operation.WithoutCode())
	}
	preview, err := previewCancel(s, found, opts)
	if err != nil {
		return err
	}
	return changeOperations(s, &c.batch, found, "cancels", "canceled", preview, func(ctx context.Context, o *record.Operation) error {
		return operation.Cancel(ctx, s.pool, o.ID, opts...)
	})
}

// previewCancel describes what Cancel would do to the operations. For several operations it only
// counts them: those with steps to undo or to keep, and those whose call in doubt is repeated,
// asked about or left to a person.
func previewCancel(s *session, found []record.Operation, opts []operation.CancelOption) ([]string, error) {
	var asks, repeats, parks, undoes, keeps int
	count := func(n *int, so bool) {
		if so {
			*n++
		}
	}
	for i := range found {
		ctx, cancel := context.WithTimeout(s.ctx, changeTimeout)
		p, err := operation.PreviewCancel(ctx, s.pool, found[i].ID, opts...)
		cancel()
		switch {
		case errors.Is(err, operation.ErrNotParked), errors.Is(err, operation.ErrUnknownOperation):
			continue // the operation ended or was purged after it was listed
		case err != nil:
			return nil, err
		case len(found) == 1:
			return record.PreviewOfCancel(&p), nil
		}
		count(&asks, p.Asks)
		count(&repeats, p.Repeats)
		count(&parks, p.Parks != "")
		count(&undoes, len(p.Undos) > 0)
		count(&keeps, len(p.Kept) > 0)
		s.progress("%d of %d", i+1, len(found))
	}
	s.progress("")
	return []string{
		fmt.Sprintf("%d have a step that is undone, and %d have a step that is done and stays, because it has no undo.", undoes, keeps),
		fmt.Sprintf("%d make a call in doubt again under its key, %d ask about one, and %d park or stay parked, and a person must decide.",
			repeats, asks, parks),
	}, nil
}

type operationResolveCommand struct {
	operationID
	sealKeys
	Happened    bool   `xor:"finding" help:"The call happened. --value is what it returned."`
	NotHappened bool   `xor:"finding" help:"The call did not happen, and will not be made: the function gets an error. To make the call again, use retry."`
	Refused     string `xor:"finding" placeholder:"TEXT" help:"The other side refused the call: the function gets an error with that text."`
	Step        string `placeholder:"STEP" help:"The step of the call, if several are in doubt. Default: the first of them."`
	Value       string `placeholder:"JSON" help:"What the call returned, as JSON. -: read it from standard input."`
	auditFlags
}

// Run resolves a call in doubt of a parked operation.
//
// Run passes to Resolve the epoch that it has read: a number that grows each time a process takes
// over the operation. If the operation was resumed meanwhile, the epochs differ and Resolve fails.
// Otherwise an outcome that the person learned about one attempt could be recorded for a later
// attempt.
func (c *operationResolveCommand) Run(s *session) error {
	value, err := c.value(s)
	if err != nil {
		return err
	}
	if strings.TrimSpace(c.Reason) == "" {
		return usage("give with --reason how the outcome is known: idem audit shows it")
	}
	var steps []record.Step
	o, err := c.find(s, func(ctx context.Context, tx pgx.Tx, o *record.Operation) (err error) {
		steps, _, err = record.Timeline(ctx, tx, o, false)
		return err
	})
	if err == nil && o.State != record.Parked {
		err = unchanged("nothing was changed: operation %s is %s, and not parked", o.ID, o.State)
	}
	if err != nil {
		return err
	}
	// The call of an undo takes fewer flags than the call of a step: an undo has no value and
	// cannot be refused.
	call := c.call(record.CallsInDoubt(o, steps))
	switch {
	case call == nil:
		return unchanged("nothing was changed: operation %s has no such call in doubt; see retry and cancel", o.ID)
	case call.IsUndo() && c.Value != "":
		return usage("the call is an undo, which has no value: leave out --value")
	// Without --value, the function of the operation would get a zero value as the result of the
	// call, which is rarely right.
	case !call.IsUndo() && c.Happened && c.Value == "":
		return usage("give what the call returned: --value JSON, or --value null if it returned nothing")
	case call.IsUndo() && c.Refused != "":
		return usage("the call is an undo, which cannot be refused")
	}
	var options []idem.Option
	if !call.IsUndo() || !c.NotHappened { // to have an undo made again, Resolve stores no value and needs no Sealer
		sealer, err := c.sealerFor(s, "the operation", o.Input.SealedBy)
		if err != nil {
			return err
		}
		if sealer != nil {
			options = append(options, idem.WithSealer(sealer))
		}
	}
	finding, outcome := c.finding(call, value)
	abridge(&o.Key, false)
	seen := operation.Status{Epoch: o.Epoch}
	what := fmt.Sprintf("that %s %s, for", doubtName(call), outcome)
	return changeOperations(s, &batch{auditFlags: c.auditFlags}, []record.Operation{*o}, "records "+what, "recorded "+what, nil,
		func(ctx context.Context, o *record.Operation) error {
			return operation.Resolve(ctx, s.pool, o.ID, finding.As(seen).Of(call.Name), options...)
		})
}

// finding returns the outcome of the call that the flags state: as an argument for Resolve, and as
// text for the person.
func (c *operationResolveCommand) finding(call *record.CallInDoubt, value json.RawMessage) (finding operation.Finding, outcome string) {
	switch {
	case c.Happened:
		return operation.Happened(value), "happened and is not made again"
	case c.Refused != "":
		return operation.Refused(errors.New(c.Refused)), "was refused by the other side"
	case call.IsUndo():
		return operation.NotHappened, "did not happen and is made again"
	}
	return operation.NotHappened, "did not happen and will not be made"
}

// call returns the call that --step names, or else the first call in doubt. It returns nil if there
// is no such call.
func (c *operationResolveCommand) call(doubts []record.CallInDoubt) *record.CallInDoubt {
	for i := range doubts {
		if step, _ := record.UndoOf(doubts[i].Name); c.Step == "" || c.Step == step || c.Step == doubts[i].Name {
			return &doubts[i]
		}
	}
	return nil
}

// value returns the value of the call as JSON. It fails if the flags contradict each other or the
// value is not JSON.
func (c *operationResolveCommand) value(s *session) (json.RawMessage, error) {
	switch {
	case !c.Happened && !c.NotHappened && c.Refused == "":
		return nil, usage("give --happened, --not-happened or --refused")
	case !c.Happened && c.Value != "":
		return nil, usage("only a call that happened has a --value")
	}
	text := []byte(c.Value)
	if c.Value == "-" {
		read, err := io.ReadAll(s.Stdin)
		if err != nil {
			return nil, err
		}
		text = read
	}
	switch {
	case len(text) == 0:
		text = []byte("null")
	case !json.Valid(text):
		return nil, usage("--value is not JSON")
	}
	return text, nil
}
