package command

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/outbox"
)

type outboxStatsCommand struct{}

// Help implements kong.HelpProvider.
func (outboxStatsCommand) Help() string {
	return `Counts up to 10,000 of each, so that it takes little time however much there is.

Example: idem outbox stats --json`
}

// Run prints the figures of the outbox.
func (c *outboxStatsCommand) Run(s *session) error {
	lanes := 0
	err := s.limited(func(ctx context.Context, tx pgx.Tx) (err error) {
		lanes, err = record.Relays(ctx, tx)
		return err
	})
	if err != nil {
		return err
	}
	ctx := s.ctx
	if limit := time.Duration(s.globals.Timeout); limit > 0 {
		bounded, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		ctx = bounded
	}
	figures, err := outbox.ReadStats(ctx, s.pool)
	if err != nil {
		return err
	}
	shown := shownOutbox{
		At: figures.ReadAt.UTC(), OldestSeconds: figures.Oldest.Seconds(), Waiting: figures.Waiting, Held: figures.Held, HeldKeys: figures.HeldKeys, Delayed: figures.Delayed,
		DeadLetters: figures.Dead, CountedTo: outbox.MaxCount, RelayedLanes: lanes, Lanes: record.Lanes,
	}
	if !figures.NextDue.IsZero() {
		due := figures.NextDue.UTC()
		shown.NextDue = &due
	}
	return s.show(shown, func(p *page.Page) { c.text(p, &shown) })
}

// shownOutbox is the JSON of the figures.
type shownOutbox struct {
	At            time.Time  `json:"at"`
	OldestSeconds float64    `json:"oldest_seconds"`
	Waiting       int        `json:"waiting"`
	Held          int        `json:"held"`
	HeldKeys      int        `json:"held_keys"`
	Delayed       int        `json:"delayed"` // not due yet; not part of other counts
	NextDue       *time.Time `json:"next_due"`
	DeadLetters   int        `json:"dead_letters"`
	CountedTo     int        `json:"counted_to"` // a count with this value may be larger
	RelayedLanes  int        `json:"relayed_lanes"`
	Lanes         int        `json:"lanes"`
}

func (c *outboxStatsCommand) text(p *page.Page, o *shownOutbox) {
	count := func(n int) string {
		if n >= o.CountedTo {
			return page.Count(int64(n)) + " or more"
		}
		return page.Count(int64(n))
	}
	oldest, held, dead := "-", count(o.Held), count(o.DeadLetters)
	if o.OldestSeconds > 0 {
		oldest = page.Age(time.Duration(o.OldestSeconds * float64(time.Second)))
	}
	if o.Held > 0 {
		held = p.Yellow(held) + p.Dim(fmt.Sprintf(" (of %s keys)", count(o.HeldKeys)))
	}
	delayed := count(o.Delayed)
	if o.NextDue != nil {
		delayed += p.Dim(" (the next is due " + relative(*o.NextDue, o.At) + ")")
	}
	if o.DeadLetters > 0 {
		dead = p.Red(dead)
	}
	relayed := fmt.Sprintf("%d of %d lanes", o.RelayedLanes, o.Lanes)
	if o.RelayedLanes == 0 {
		relayed = p.Yellow("by no process")
	}
	p.Pairs([]page.Pair{
		{Name: "oldest", Value: oldest}, {Name: "waiting", Value: count(o.Waiting)}, {Name: "held back", Value: held},
		{Name: "delayed", Value: delayed},
		{Name: "dead letters", Value: dead}, {Name: "relayed", Value: relayed},
	})
}
