package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/seal"
)

type operationRetryCommand struct{ chosenOperations }

// Help says more.
func (operationRetryCommand) Help() string {
	return `For an operation that is parked and whose reason is gone: the code is mended, the other side is back. It goes on when a Worker, or a call
with its key, comes. If it is not known whether a call that is Once has happened, it is parked again: see resolve. --all retries many at once: say what they have in common.

Example: idem operation retry --all --name checkout --step charge --dry-run`
}

// Run retries.
func (c *operationRetryCommand) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	retry := func(ctx context.Context, id string) error { return operation.Retry(ctx, s.pool, id) }
	if c.All {
		return c.changeAll(s, record.Parked, "retries %d parked operations", "retried", retry)
	}
	o, err := c.one().find(s, nil)
	if err == nil {
		err = parked(o)
	}
	if err != nil {
		return err
	}
	return c.one().change(s, o, &c.accountable, "lets it go on as it is", "it goes on",
		func(ctx context.Context) error { return retry(ctx, o.ID) })
}

type operationCancelCommand struct {
	chosenOperations
	State string `enum:"parked,running" default:"parked" placeholder:"STATE" help:"With --all: parked or running. Default: ${default}."`
}

// Help says more.
func (operationCancelCommand) Help() string {
	return `For an operation that runs or is parked, and is not wanted any more. It begins no step, settles the call that is under way, and takes back
what was done, when a Worker or a call with its key comes. After that its key is new.
--all cancels many at once: say what they have in common.

Example: idem operation cancel 0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10 --yes`
}

// Run cancels.
func (c *operationCancelCommand) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	cancel := func(ctx context.Context, id string) error { return operation.Cancel(ctx, s.pool, id) }
	if c.All {
		return c.changeAll(s, c.State, "cancels %d "+c.State+" operations, and takes back what they have done", "cancelled", cancel)
	}
	o, err := c.one().find(s, nil)
	if err != nil {
		return err
	}
	if o.State != record.Parked && o.State != record.Running {
		return refusedError{fmt.Sprintf("nothing was changed: operation %s has ended, it is %s", o.ID, o.State)}
	}
	return c.one().change(s, o, &c.accountable, "ends it, and takes back what it has done", "it is being ended",
		func(ctx context.Context) error { return cancel(ctx, o.ID) })
}

type operationResolveCommand struct {
	operationID
	sealKeys
	Happened    bool   `xor:"finding" help:"The call was made. --value is what it has returned."`
	NotHappened bool   `xor:"finding" help:"The call was not made, and can not be any more: the operation makes it."`
	Refused     string `xor:"finding" placeholder:"TEXT" help:"The other side has refused the call: the operation is given an error of that text, which is final."`
	Step        string `placeholder:"STEP" help:"Which call it is about, where several were made at the same time and are in doubt. Default: the first of them."`
	Value       string `placeholder:"JSON" help:"What the call has returned, as it would be on record. -: read it from standard input. Default: null."`
	accountable
}

// Help says more.
func (operationResolveCommand) Help() string {
	return `For an operation that is parked because it is not known whether a call has happened. Ask the other side first, by the key of the call: what
is said here is believed. A value is sealed if the operation's are, which takes the keys.

Example: idem operation resolve 0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10 --happened --value '{"charge":"ch_1"}' --yes`
}

// Run resolves.
func (c *operationResolveCommand) Run(s *session) error {
	value, err := c.value(s)
	if err != nil {
		return err
	}
	o, err := c.find(s, func(ctx context.Context, tx pgx.Tx, o *record.Operation) error {
		_, _, err := record.Timeline(ctx, tx, o, false)
		return err
	})
	if err == nil {
		err = parked(o)
	}
	if err != nil {
		return err
	}
	switch {
	case !o.InDoubt():
		return refusedError{fmt.Sprintf("nothing was changed: operation %s is at no call whose outcome is unknown; see retry and cancel", o.ID)}
	case o.Kind == string(store.UndoStep) && c.Value != "":
		return usage("the call is an undo, which has no value: leave --value out")
	case o.Kind != string(store.UndoStep) && c.Happened && c.Value == "":
		return usage("say what the call has returned, which the function is given: --value JSON, or --value null if that is nothing")
	case o.Kind == string(store.UndoStep) && c.Refused != "":
		return usage("the call is an undo, which cannot be refused: it has to be done")
	}
	options, err := c.options(s, o)
	if err != nil {
		return err
	}
	finding, will := operation.NotHappened, "says that the call was not made, and has it made"
	switch {
	case c.Happened:
		finding, will = operation.Happened(value), "says that the call was made, and is not to be made again"
	case c.Refused != "":
		finding, will = operation.Refused(errors.New(c.Refused)), "says that the other side has refused the call"
	}
	seen := operation.Status{Epoch: o.Epoch}
	return c.change(s, o, &c.accountable, will, "it goes on from there",
		func(ctx context.Context) error {
			return operation.Resolve(ctx, s.pool, o.ID, finding.As(seen).Of(c.Step), options...)
		})
}

// value is that of the call, as it is recorded.
func (c *operationResolveCommand) value(s *session) (json.RawMessage, error) {
	switch {
	case !c.Happened && !c.NotHappened && c.Refused == "":
		return nil, usage("say either --happened or --not-happened, or --refused")
	case !c.Happened && c.Value != "":
		return nil, usage("a call that was not made has no --value")
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

// options have what seals a value, if the input of the operation is sealed.
func (c *operationResolveCommand) options(s *session, o *record.Operation) ([]idem.Option, error) {
	if o.Input.SealedBy == "" || c.NotHappened {
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
