package command

import (
	"context"
	"encoding/json"
	"errors"
	"syscall"
	"time"

	"github.com/idem-go/idem/cmd/idem/internal/address"
	"github.com/idem-go/idem/cmd/idem/internal/screen"
	"github.com/idem-go/idem/stats"
)

type watchCommand struct {
	Every span `default:"2s" placeholder:"SPAN" help:"How often it reads. Default: ${default}."`
}

// Help implements kong.HelpProvider.
func (watchCommand) Help() string {
	return `The figures of stats as a screen that goes on, in 80 columns or more: q leaves, p pauses. With --json it writes one line for each reading,
and needs no terminal.

Example: idem watch --every 5s`
}

// Run shows the figures until the user quits.
func (c *watchCommand) Run(s *session) error {
	every := max(time.Duration(c.Every), 100*time.Millisecond)
	if _, err := readStats(s); err != nil {
		return err
	}
	if s.globals.JSON {
		return follow(s, every)
	}
	if !s.OutIsTerminal || !s.InIsTerminal {
		return usage("watch is a screen and needs a terminal: say --json for lines, or use idem stats")
	}
	err := screen.Run(s.ctx, screen.Options{
		Where: address.Describe(&s.pool.Config().ConnConfig.Config), Every: every, Colour: s.colours(),
		In: s.Stdin, Out: s.Stdout, Env: s.Environ,
		Read: func(context.Context) (stats.Stats, error) {
			v, err := readStats(s)
			if err != nil {
				err = explained(err)
			}
			return v, err
		},
	})
	if errors.Is(err, screen.ErrInterrupted) {
		return Interrupted{syscall.SIGINT}
	}
	return err
}

// follow prints a line of JSON for each reading.
func follow(s *session, every time.Duration) error {
	encoder := json.NewEncoder(s.Stdout)
	encoder.SetEscapeHTML(false)
	next := time.NewTicker(every)
	defer next.Stop()
	for {
		v, err := readStats(s)
		if err != nil {
			return err
		}
		if err := encoder.Encode(newShownStats(v)); err != nil {
			return err
		}
		select {
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case <-next.C:
		}
	}
}
