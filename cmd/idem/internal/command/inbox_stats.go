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

type inboxStatsCommand struct{}

// Help implements kong.HelpProvider.
func (inboxStatsCommand) Help() string {
	return `Has a line for each consumer that has messages to try again, or dead letters. What is handled is not even read.

Example: idem inbox stats --json`
}

// Run prints one line per consumer.
func (c *inboxStatsCommand) Run(s *session) error {
	var consumers []record.Consumer
	err := s.limited(func(ctx context.Context, tx pgx.Tx) (err error) {
		consumers, err = record.Consumers(ctx, tx)
		return err
	})
	if err != nil {
		return err
	}
	shown := shownConsumers{[]shownConsumer{}}
	for i := range consumers {
		c := &consumers[i]
		shown.Consumers = append(shown.Consumers, shownConsumer{
			Consumer: c.Name, Failing: c.Failing, FailingSince: inUTC(c.FailingSince), NextAt: inUTC(c.NextAt), MostAttempts: c.Attempts,
			DeadLetters: c.Dead, Redrives: c.Redrives, DeadSince: inUTC(c.DeadSince),
		})
	}
	return s.show(shown, func(p *page.Page) { c.text(p, consumers) })
}

// shownConsumers is the JSON of the figures.
type shownConsumers struct {
	Consumers []shownConsumer `json:"consumers"`
}

type shownConsumer struct {
	Consumer     string     `json:"consumer"`
	Failing      int64      `json:"failing"`
	FailingSince *time.Time `json:"failing_since"`
	NextAt       *time.Time `json:"next_at"`
	MostAttempts int        `json:"most_attempts"`
	DeadLetters  int64      `json:"dead_letters"`
	Redrives     int64      `json:"redrives"`
	DeadSince    *time.Time `json:"dead_since"`
}

func (c *inboxStatsCommand) text(p *page.Page, consumers []record.Consumer) {
	if len(consumers) == 0 {
		p.Printf("nothing fails, and nothing is dead\n")
		return
	}
	var rows [][]string
	for i := range consumers {
		c := &consumers[i]
		failing, attempts, dead := page.Count(c.Failing), "", page.Count(c.Dead)
		if c.Failing > 0 {
			failing, attempts = p.Yellow(failing), strconv.Itoa(c.Attempts)
		}
		if c.Dead > 0 {
			dead = p.Red(dead)
		}
		if c.Redrives > 0 {
			dead += p.Dim(fmt.Sprintf(" (%s tried again)", page.Count(c.Redrives)))
		}
		rows = append(rows, []string{page.Safe(c.Name), failing, ageOf(c.FailingSince, c.Now), attempts, nextTry(c.NextAt, c.Now), dead, ageOf(c.DeadSince, c.Now)})
	}
	p.Table([]page.Column{{Name: "CONSUMER"}, {Name: "FAILING", Right: true}, {Name: "SINCE", Right: true}, {Name: "ATTEMPTS", Right: true},
		{Name: "NEXT TRY"}, {Name: "DEAD", Right: true}, {Name: "SINCE", Right: true}}, rows)
}

// ageOf returns the time since at, or a placeholder if at is nil.
func ageOf(at *time.Time, now time.Time) string {
	if at == nil {
		return ""
	}
	return page.Age(now.Sub(*at))
}

// nextTry describes the time of the next attempt, if it is known. A message whose time has come
// waits for the broker to deliver it.
func nextTry(at *time.Time, now time.Time) string {
	switch {
	case at == nil:
		return ""
	case !at.After(now):
		return "when it is delivered"
	}
	return relative(*at, now)
}
