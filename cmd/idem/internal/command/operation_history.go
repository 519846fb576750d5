package command

import (
	"context"
	"errors"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

type operationHistoryCommand struct {
	operationID
	sealKeys
}

// Help implements kong.HelpProvider.
func (operationHistoryCommand) Help() string {
	return `Writes the history of one operation to standard output: its input and its steps, with their values in clear. Kept in a file of
testdata/, it is what
idemtest.Replay holds the code of the next release to. Look through it before you share it.

Example: idem operation history 0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10`
}

// Run prints the history.
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
		return noRecordError{"operation " + found.ID + " was purged meanwhile"}
	case errors.Is(err, idem.ErrUnreadable):
		return errors.Join(err, errors.New("give its keys with --seal-keys or IDEM_SEAL_KEYS"))
	case err != nil:
		return err
	}
	_, err = s.Stdout.Write(history)
	return err
}
