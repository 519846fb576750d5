package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/seal"
)

type operationShowCommand struct {
	operationID
	sealKeys
	Reveal bool `help:"Show the input and the values of steps and signals. If they are sealed, this takes the keys."`
	Full   bool `help:"Show the whole key."`
}

// Help implements kong.HelpProvider.
func (operationShowCommand) Help() string {
	return `Shows one operation: its state, why it is parked, its last error, and its recorded steps. A step is recorded with the commit that follows
it, and AFTER is the time from the beginning of the operation to that commit. An error that is sealed is shown with the keys, and as "sealed" without
them. Values are not read unless --reveal asks for them.

Example: idem operation show 0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10 --reveal`
}

// Run prints the operation.
func (c *operationShowCommand) Run(s *session) error {
	t := timeline{}
	o, err := c.find(s, func(ctx context.Context, tx pgx.Tx, o *record.Operation) (err error) {
		t.steps, t.sent, err = record.Timeline(ctx, tx, o, c.Reveal)
		return err
	})
	if err != nil {
		return err
	}
	t.operation = o
	sealer, err := c.sealer(s)
	if err != nil {
		return err
	}
	o.LastError.Open(o.ID, sealer)
	if err := t.readUndos(s); err != nil {
		return err
	}
	if c.Reveal {
		if err := t.open(s, c.sealKeys); err != nil {
			return err
		}
	}
	return s.show(t.shown(c.Full), func(p *page.Page) { c.text(p, &t) })
}

// timeline is an operation with its recorded steps and its signals.
type timeline struct {
	operation   *record.Operation
	steps       []record.Step
	sent        []record.Sent
	undos, kept []string
}

// readUndos reads which undos are still to run, and which steps stay because they have no undo.
func (t *timeline) readUndos(s *session) error {
	ctx, cancel := context.WithTimeout(s.ctx, changeTimeout)
	defer cancel()
	status, err := operation.Show(ctx, s.pool, t.operation.ID)
	if err != nil && !errors.Is(err, operation.ErrUnknownOperation) { // ignore an operation that was purged in the meantime
		return err
	}
	t.undos, t.kept = status.Undos, status.Kept
	return nil
}

// open decrypts the sealed values.
func (t *timeline) open(s *session, keys sealKeys) error {
	secrets, err := keys.secrets(s)
	if err != nil {
		return err
	}
	var sealer db.Sealer
	if len(secrets) > 0 {
		sealer = seal.New(seal.Keys{Primary: anyOf(secrets), Secrets: secrets})
	}
	// Each value is sealed together with its place (bound), so a value that was moved to another
	// row does not open.
	open := func(what string, v *record.Value, bound []byte) error {
		if v.SealedBy != "" && secrets[v.SealedBy] == nil {
			return fmt.Errorf("%s is sealed with the key %q: give it with --seal-keys or IDEM_SEAL_KEYS", what, page.Safe(v.SealedBy))
		}
		err := v.Open(sealer, bound)
		if errors.Is(err, seal.ErrTampered) {
			return fmt.Errorf("%s does not open with the key %q: it was changed, moved from another place, or that id has another secret", what, page.Safe(v.SealedBy))
		}
		return err
	}
	if err := open("the input", &t.operation.Input, db.BoundInput(t.operation.ID)); err != nil {
		return err
	}
	for i := range t.steps {
		step := &t.steps[i]
		bound := db.BoundStep(t.operation.ID, &db.Step{
			Seq: step.Seq, Kind: db.StepKind(step.Kind), Name: step.Name, Outcome: db.StepOutcome(step.Outcome)})
		if err := open("step "+page.Safe(step.Name), &step.Value, bound); err != nil {
			return err
		}
	}
	for i := range t.sent {
		signal := &t.sent[i]
		if err := open("signal "+page.Safe(signal.Name), &signal.Value, db.BoundSignal(t.operation.ID, signal.Name)); err != nil {
			return err
		}
	}
	return nil
}
