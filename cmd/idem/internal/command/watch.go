package command

import (
	"context"
	"encoding/json"
	"time"
)

type watchCommand struct {
	Every span `default:"2s" placeholder:"SPAN" help:"Time between two readings. Default: ${default}."`
}

func (watchCommand) Help() string {
	return `Prints the figures of stats again and again, until Ctrl-C. A terminal is cleared before each reading. With --json it writes one line for
each reading.

Example: idem watch --every 5s`
}

// Run prints readings until the command is interrupted. An error of the first reading ends it. A
// later error is printed, and the next reading tries again, except with --json.
func (c *watchCommand) Run(s *session) error {
	encoder := json.NewEncoder(s.Stdout)
	encoder.SetEscapeHTML(false)
	next := time.NewTicker(max(time.Duration(c.Every), 100*time.Millisecond))
	defer next.Stop()
	for first := true; ; first = false {
		v, err := readStats(s)
		switch {
		case s.ctx.Err() != nil:
			return context.Cause(s.ctx)
		case err != nil && (first || s.globals.JSON):
			return err
		case err != nil:
			say(s.World, explained(err).Error())
		case s.globals.JSON:
			err = encoder.Encode(newShownStats(v))
		default:
			if s.OutIsTerminal {
				s.page.Printf("\x1b[H\x1b[2J") // cursor home, clear
			}
			statsText(s.page, v, nil)
			s.page.Printf("read at %s, every %v; Ctrl-C ends\n", v.ReadAt.UTC().Format("15:04:05 MST"), time.Duration(c.Every))
		}
		if s.globals.JSON && err != nil {
			return err
		}
		if s.page.Err() != nil {
			return s.page.Err()
		}
		select {
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case <-next.C:
		}
	}
}
