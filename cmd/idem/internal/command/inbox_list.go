package command

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
)

type inboxListCommand struct {
	Consumer string `placeholder:"NAME" help:"Of this consumer."`
	Source   string `placeholder:"SOURCE" help:"From this source."`
	Limit    int    `default:"50" help:"How many at most, up to 10000. Default: ${default}."`
	Full     bool   `help:"Show whole keys."`
}

// Help implements kong.HelpProvider.
func (inboxListCommand) Help() string {
	return `Why a message has failed is in the log of its consumer: the database has it only once the message is dead. NEXT TRY is the soonest; it takes
a delivery by the broker as well. An attempt that is announced has not told how it ended: it is under way, or its process was killed.

Example: idem inbox list --consumer billing`
}

// Run lists failing messages.
func (c *inboxListCommand) Run(s *session) error {
	if c.Limit < 1 || c.Limit > 10000 {
		return usage("--limit is between 1 and 10000")
	}
	var found []record.Failing
	err := s.limited(func(ctx context.Context, tx pgx.Tx) (err error) {
		found, err = record.FailingMessages(ctx, tx, c.Consumer, c.Source, c.Limit+1)
		return err
	})
	if err != nil {
		return err
	}
	more := len(found) > c.Limit
	if more {
		found = found[:c.Limit]
	}
	shown := shownFailingList{[]shownFailing{}, more}
	for i := range found {
		f := &found[i]
		shown.Messages = append(shown.Messages, shownFailing{
			Consumer: f.Consumer, Source: f.Source, ID: f.ID, Key: messageKey(f.Key, c.Full, jsonKey), Since: f.Since.UTC(), Attempts: f.Attempts,
			Hindered: f.Hindered, NextAt: inUTC(f.NextAt),
		})
	}
	return s.show(shown, func(p *page.Page) { c.text(p, found, more) })
}

// shownFailingList is the JSON of the list.
type shownFailingList struct {
	Messages []shownFailing `json:"messages"`
	More     bool           `json:"more"`
}

type shownFailing struct {
	Consumer string     `json:"consumer"`
	Source   string     `json:"source"`
	ID       string     `json:"id"`
	Key      string     `json:"key"`
	Since    time.Time  `json:"since"`
	Attempts int        `json:"attempts"`
	Hindered int        `json:"hindered,omitempty"`
	NextAt   *time.Time `json:"next_at"`
}

func (c *inboxListCommand) text(p *page.Page, found []record.Failing, more bool) {
	if len(found) == 0 {
		p.Printf("nothing fails\n")
		return
	}
	var rows [][]string
	for i := range found {
		f := &found[i]
		next := "announced"
		if f.NextAt != nil {
			next = nextTry(f.NextAt, f.Now)
		}
		attempts := strconv.Itoa(f.Attempts)
		if f.Hindered > 0 { // usually by a lock
			attempts += fmt.Sprintf(" (%d hindered)", f.Hindered)
		}
		rows = append(rows, []string{page.Safe(f.Consumer), page.Safe(f.Source), page.Safe(f.ID), messageKey(f.Key, c.Full, shownKey),
			ageOf(&f.Since, f.Now), attempts, next})
	}
	p.Table([]page.Column{{Name: "CONSUMER"}, {Name: "SOURCE"}, {Name: "ID"}, {Name: "KEY"}, {Name: "SINCE", Right: true}, {Name: "ATTEMPTS", Right: true},
		{Name: "NEXT TRY"}}, rows)
	if more {
		p.Printf("%s\n", p.Dim(fmt.Sprintf("there are more: raise --limit (%d shown)", len(found))))
	}
}
