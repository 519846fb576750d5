package command

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/outbox"
)

type outboxCommand struct {
	Stats  outboxStatsCommand  `cmd:"" help:"Show the backlog of the outbox, and whether a relay runs."`
	List   outboxListCommand   `cmd:"" help:"List messages that are not published yet, in the order in which they were added."`
	Forget outboxForgetCommand `cmd:"" help:"Release the topics of a relay that is no longer deployed."`
}

type outboxListCommand struct {
	Topic string `placeholder:"TOPIC" help:"Of this topic."`
	State string `enum:",waiting,held,delayed" default:"" placeholder:"STATE" help:"waiting; held: it could not be published, or waits behind a held message of its topic and key; delayed: not due yet. Default: waiting and held."`
	Older span   `placeholder:"SPAN" help:"Added longer ago than this."`
	limitFlag
	afterFlag
	fullFlag
}

// messageTable shows in NEXT TRY why a message is held: it failed and has a next attempt, or it
// waits behind a failed message of its topic and key.
var messageTable = table[record.Message]{
	"no messages",
	page.Columns(">SEQ", "ID", "TOPIC", "KEY", ">AGE", "STATE", ">ATTEMPTS", "NEXT TRY", "CLASS"),
	func(p *page.Page, m *record.Message) []string {
		state, attempts, next := m.State, "", ""
		if m.NextAt != nil {
			next = page.Relative(*m.NextAt, m.Now)
		}
		if m.State == "held" {
			if state = p.Yellow("held"); m.Attempts == nil {
				next = "behind another"
			} else {
				attempts = strconv.Itoa(*m.Attempts)
			}
		}
		return []string{strconv.FormatInt(m.Seq, 10), m.ID, page.Safe(m.Topic), page.Safe(m.Key), page.Age(m.Now.Sub(m.AddedAt)), state, attempts, next, page.Safe(m.Class)}
	},
}

// Run lists messages. Delayed messages come from a table of their own and are sorted by due time.
// That list cannot be continued with --after, because the mark is a sequence number.
func (c *outboxListCommand) Run(s *session) error {
	list, mark := record.Messages, func(m *record.Message) string { return strconv.FormatInt(m.Seq, 10) }
	if c.State == "delayed" {
		if list, mark = record.DelayedMessages, nil; c.After != "" {
			return usage("--state delayed has no --after: raise --limit")
		}
	}
	var after int64
	if c.After != "" {
		var err error
		if after, err = strconv.ParseInt(c.After, 10, 64); err != nil {
			return usage("--after must be a mark that the end of a list printed")
		}
	}
	return showList(s, c.Limit, "messages", &messageTable, mark, func(ctx context.Context, tx pgx.Tx, limit int) ([]record.Message, error) {
		found, err := list(ctx, tx, record.MessageFilter{Topic: c.Topic, State: c.State, Older: time.Duration(c.Older), After: after, Limit: limit})
		for i := range found {
			abridge(&found[i].Key, c.Full)
		}
		return found, err
	})
}

type outboxStatsCommand struct{}

// Run prints the backlog of the outbox.
func (c *outboxStatsCommand) Run(s *session) error {
	lanes, err := queryTx(s, record.Relays)
	if err != nil {
		return err
	}
	ctx, cancel := s.withTimeout()
	defer cancel()
	figures, err := outbox.ReadStats(ctx, s.pool)
	if err != nil {
		return err
	}
	shown := shownOutbox{
		At: figures.ReadAt.UTC(), OldestSeconds: figures.Oldest.Seconds(), Waiting: figures.Waiting, Held: figures.Held, HeldKeys: figures.HeldKeys,
		Delayed: figures.Delayed, NextDue: timeOrNil(figures.NextDue), DeadLetters: figures.Dead, CountedTo: outbox.MaxCount,
		RelayedLanes: lanes, Lanes: record.Lanes,
	}
	return s.show(shown, shown.text)
}

// shownOutbox is the JSON document of idem outbox stats.
type shownOutbox struct {
	At            time.Time  `json:"at"`
	OldestSeconds float64    `json:"oldest_seconds"`
	Waiting       int        `json:"waiting"`
	Held          int        `json:"held"`
	HeldKeys      int        `json:"held_keys"`
	Delayed       int        `json:"delayed"` // messages that are not due yet; the other counts do not include them
	NextDue       *time.Time `json:"next_due"`
	DeadLetters   int        `json:"dead_letters"`
	CountedTo     int        `json:"counted_to"` // a count of this value means "this number or more"
	RelayedLanes  int        `json:"relayed_lanes"`
	Lanes         int        `json:"lanes"`
}

// text prints the figures. If a count has reached the limit CountedTo, "or more" is added.
func (o shownOutbox) text(p *page.Page) {
	count := func(n int) string { return page.AtLeast(int64(n), int64(o.CountedTo)) }
	oldest, held, dead := "-", count(o.Held), count(o.DeadLetters)
	if o.OldestSeconds > 0 {
		oldest = page.Age(time.Duration(o.OldestSeconds * float64(time.Second)))
	}
	if o.Held > 0 {
		held = p.Yellow(held) + p.Dim(fmt.Sprintf(" (of %s keys)", count(o.HeldKeys)))
	}
	delayed := count(o.Delayed)
	if o.NextDue != nil {
		delayed += p.Dim(" (the next is due " + page.Relative(*o.NextDue, o.At) + ")")
	}
	if o.DeadLetters > 0 {
		dead = p.Red(dead)
	}
	relayed := fmt.Sprintf("%d of %d lanes", o.RelayedLanes, o.Lanes)
	if o.RelayedLanes == 0 {
		relayed = p.Yellow("by no process")
	}
	p.Pairs([]page.Pair{
		{Name: "oldest", Value: oldest}, {Name: "waiting", Value: count(o.Waiting)}, {Name: "held", Value: held}, {Name: "delayed", Value: delayed},
		{Name: "dead letters", Value: dead}, {Name: "relayed", Value: relayed},
	})
}

type outboxForgetCommand struct {
	Name string `arg:"" help:"RelayConfig.Name, as idem doctor prints it for a relay that does not run."`
	auditFlags
}

// forgotten is a relay in the JSON document of idem outbox forget.
type forgotten struct {
	Relay string `json:"relay"`
}

// Run releases the topics of a relay. Package outbox refuses to release them while the relay runs,
// because the relay would claim its topics again.
func (c *outboxForgetCommand) Run(s *session) error {
	pool, err := s.connected()
	if err != nil {
		return err
	}
	name := fmt.Sprintf("the topics of the relay %q", page.Safe(c.Name))
	return change(s, &batch{auditFlags: c.auditFlags}, []forgotten{{c.Name}}, &changeSpec[forgotten]{
		kind: "relays", will: "releases", done: "released", name: func(*forgotten) string { return name },
		do: func(ctx context.Context, _ *forgotten) error {
			err := outbox.ForgetRelay(ctx, pool, c.Name)
			switch {
			case errors.Is(err, outbox.ErrNoRelay):
				return noRecord("there is no relay %q", page.Safe(c.Name))
			case errors.Is(err, outbox.ErrRelayRuns):
				return unchanged("nothing was changed: a process runs the relay %q; stop it first", page.Safe(c.Name))
			}
			return err
		},
	})
}
