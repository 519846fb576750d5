package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/outbox"
)

type outboxForgetCommand struct {
	Name string `arg:"" help:"RelayConfig.Name: idem doctor tells it where its relay is not there."`
	accountable
}

func (outboxForgetCommand) Help() string {
	return `For a relay that is not deployed any more. Its topics are then those of the relay without a name, or of one that has them in its
RelayConfig.Topics. A relay that runs is not forgotten: stop it first. No message is lost.

Example: idem outbox forget invoices`
}

// Run removes the topics of a relay after confirmation.
func (c *outboxForgetCommand) Run(s *session) error {
	if err := c.ask(s, fmt.Sprintf("takes its topics from the relay %q: the relay without a name publishes them, or one whose Topics have them", page.Safe(c.Name))); err != nil {
		return err
	}
	pool, err := s.connected()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.onRecord(s), changeTimeout)
	defer cancel()
	err = outbox.ForgetRelay(ctx, pool, c.Name)
	switch {
	case errors.Is(err, outbox.ErrNoRelay):
		return noRecordError{fmt.Sprintf("no relay %q is stored", page.Safe(c.Name))}
	case errors.Is(err, outbox.ErrRelayRuns):
		return refusedError{fmt.Sprintf("nothing was changed: a process runs the relay %q; stop it first", page.Safe(c.Name))}
	case err != nil:
		return err
	}
	return s.show(shownForgotten{Relay: c.Name}, func(p *page.Page) { p.Printf("forgotten: the relay %q has no topics any more\n", page.Safe(c.Name)) })
}

// shownForgotten is the JSON document of idem outbox forget.
type shownForgotten struct {
	Relay string `json:"forgotten"`
}
