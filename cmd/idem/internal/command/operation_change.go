package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/seal"
)

type operationRetryCommand struct{ chosenOperations }

// Help implements kong.HelpProvider.
func (operationRetryCommand) Help() string {
	return `Use it when the reason of a parked operation is gone: the code is fixed, or the other side is back. A Worker, or a call with the key,
then resumes the operation. A Keyed call in doubt is made again under its key. An operation whose Once call is in doubt parks again: see resolve.
--all retries all operations that the filters select.

Example: idem operation retry --all --name checkout --step charge --dry-run`
}

// Run retries parked operations.
func (c *operationRetryCommand) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	retry := func(ctx context.Context, id string) error { return operation.Retry(ctx, s.pool, id) }
	if c.All {
		return c.changeAll(s, record.Parked, "retries %d parked operations", "retried", nil, retry)
	}
	o, err := c.one().find(s, nil)
	if err == nil {
		err = parked(o)
	}
	if err != nil {
		return err
	}
	return c.one().change(s, o, &c.accountable, nil, "retries it", "it is retried",
		func(ctx context.Context) error { return retry(ctx, o.ID) })
}

type operationCancelCommand struct {
	chosenOperations
	State          string `enum:"parked,running" default:"parked" placeholder:"STATE" help:"With --all: parked or running. Default: ${default}."`
	WithoutCalling bool   `help:"Make no call in doubt again: the operation parks, and resolve says the outcome."`
	WithoutCode    bool   `help:"End it by its recorded steps alone, where its code has changed or keeps failing. Steps that the code no longer asks for are not undone."`
}

// Help implements kong.HelpProvider.
func (operationCancelCommand) Help() string {
	return `Ends an operation that runs or is parked. It begins no further step, and its steps are undone by a Worker, or by a call with the key.
After that the key is free. The command prints what will happen before it asks: which call is in doubt and what Cancel does about it, which steps
are undone, and which steps stay because they have no undo. A call in doubt is asked about if its policy is Asked. If its policy is Keyed and its
step has an undo, the call is made again under its key, and then undone. Otherwise the operation parks, and resolve says the outcome.
Canceling an operation again changes nothing. --all cancels all operations that the filters select.

Example: idem operation cancel 0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10 --yes`
}

// Run cancels operations, after a preview of the effects.
func (c *operationCancelCommand) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	opts := c.options()
	cancel := func(ctx context.Context, id string) error { return operation.Cancel(ctx, s.pool, id, opts...) }
	preview := func(ctx context.Context, id string) (*operation.CancelPreview, error) {
		p, err := operation.PreviewCancel(ctx, s.pool, id, opts...)
		return &p, err
	}
	if c.All {
		return c.changeAll(s, c.State, "cancels %d "+c.State+" operations, and undoes what they have done", "canceled", preview, cancel)
	}
	o, err := c.one().find(s, nil)
	if err != nil {
		return err
	}
	if o.State != record.Parked && o.State != record.Running {
		return refusedError{fmt.Sprintf("nothing was changed: operation %s has ended, it is %s", o.ID, o.State)}
	}
	ctx, end := context.WithTimeout(s.ctx, changeTimeout)
	defer end()
	will, err := preview(ctx, o.ID)
	if err != nil {
		return err
	}
	return c.one().change(s, o, &c.accountable, record.PreviewOfCancel(will), "cancels it, and undoes what it has done", "it is canceled",
		func(ctx context.Context) error { return cancel(ctx, o.ID) })
}

func (c *operationCancelCommand) options() (opts []operation.CancelOption) {
	if c.WithoutCalling {
		opts = append(opts, operation.WithoutCalling())
	}
	if c.WithoutCode {
		opts = append(opts, operation.WithoutCode())
	}
	return opts
}

type operationResolveCommand struct {
	operationID
	sealKeys
	Happened    bool   `xor:"finding" help:"The call has happened. --value is what it has returned."`
	NotHappened bool   `xor:"finding" help:"The call has not happened, and will not be made: the function gets an error. To have it made again, use retry instead."`
	Refused     string `xor:"finding" placeholder:"TEXT" help:"The other side has refused the call: the function gets an error with that text."`
	Step        string `placeholder:"STEP" help:"Which call it is, if several are in doubt. Default: the first of them."`
	Value       string `placeholder:"JSON" help:"What the call has returned, as JSON. -: read it from standard input."`
	accountable
}

// Help implements kong.HelpProvider.
func (operationResolveCommand) Help() string {
	return `Says the outcome of a call that is in doubt, of a parked operation. Ask the other side first, by the key of the call: idem operation show
prints it. The operation believes what is said here. --reason is required and says how the outcome is known. If the call has not happened,
--not-happened ends it: the call will not be made, and the function gets an error. retry makes the call again instead, unless its policy is Once.
An undo that has not happened is made again in both cases. If the values of the operation are sealed, a value or an error of resolve is sealed,
too, which takes the keys.

Example: idem operation resolve 0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10 --happened --value '{"charge":"ch_1"}' --reason 'INC-7: the bank has it' --yes`
}

// Run records the outcome of a call in doubt.
func (c *operationResolveCommand) Run(s *session) error {
	value, err := c.value(s)
	if err != nil {
		return err
	}
	if strings.TrimSpace(c.Reason) == "" {
		return usage("say with --reason how the outcome is known: idem audit shows it")
	}
	var steps []record.Step
	o, err := c.find(s, func(ctx context.Context, tx pgx.Tx, o *record.Operation) (err error) {
		steps, _, err = record.Timeline(ctx, tx, o, false)
		return err
	})
	if err == nil {
		err = parked(o)
	}
	if err != nil {
		return err
	}
	call := c.choose(record.Doubts(o, steps))
	switch {
	case call == nil:
		return refusedError{fmt.Sprintf("nothing was changed: operation %s has no such call in doubt; see retry and cancel", o.ID)}
	case call.IsUndo() && c.Value != "":
		return usage("the call is an undo, which has no value: leave --value out")
	case !call.IsUndo() && c.Happened && c.Value == "":
		return usage("say what the call has returned, which the function gets: --value JSON, or --value null if that is nothing")
	case call.IsUndo() && c.Refused != "":
		return usage("the call is an undo, which cannot be refused: it has to be done")
	}
	options, err := c.options(s, o, call.IsUndo() && c.NotHappened)
	if err != nil {
		return err
	}
	what := "call of step " + page.Safe(call.Name)
	finding, will := operation.NotHappened, "says that the "+what+" has not happened, and it will not be made"
	switch {
	case c.Happened:
		finding, will = operation.Happened(value), "says that the "+what+" has happened, and it is not made again"
	case c.Refused != "":
		finding, will = operation.Refused(errors.New(c.Refused)), "says that the other side has refused the "+what
	case call.IsUndo():
		will = "says that the undo of step " + page.Safe(record.UndoName(call.Name)) + " has not happened, and it is made again"
	}
	seen := operation.Status{Epoch: o.Epoch}
	return c.change(s, o, &c.accountable, nil, will, "the outcome is recorded, and it is resumed",
		func(ctx context.Context) error {
			return operation.Resolve(ctx, s.pool, o.ID, finding.As(seen).Of(call.Name), options...)
		})
}

// choose returns the call in doubt that --step names, the first one if --step is empty, and nil if
// there is no such call.
func (c *operationResolveCommand) choose(doubts []record.Doubt) *record.Doubt {
	for i := range doubts {
		if step, _ := record.UndoOf(doubts[i].Name); c.Step == "" || c.Step == step || c.Step == doubts[i].Name {
			return &doubts[i]
		}
	}
	return nil
}

// value returns the result of the call as it is recorded. It fails if the flags contradict each
// other or if --value is not JSON.
func (c *operationResolveCommand) value(s *session) (json.RawMessage, error) {
	switch {
	case !c.Happened && !c.NotHappened && c.Refused == "":
		return nil, usage("say --happened, --not-happened or --refused")
	case !c.Happened && c.Value != "":
		return nil, usage("a call that has not happened has no --value")
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

// options returns the Sealer of the operation if its input is sealed. The value or error of the
// call is then sealed as well. An undo that is repeated records nothing, and needs no Sealer.
func (c *operationResolveCommand) options(s *session, o *record.Operation, isRepeated bool) ([]idem.Option, error) {
	if o.Input.SealedBy == "" || isRepeated {
		return nil, nil
	}
	secrets, err := c.secrets(s)
	if err != nil {
		return nil, err
	}
	if secrets[o.Input.SealedBy] == nil {
		return nil, fmt.Errorf("the operation is sealed with the key %q, which is needed for the value: give it with --seal-keys or IDEM_SEAL_KEYS", page.Safe(o.Input.SealedBy))
	}
	return []idem.Option{idem.WithSealer(seal.New(seal.Keys{Primary: o.Input.SealedBy, Secrets: secrets}))}, nil
}
