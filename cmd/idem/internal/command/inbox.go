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

type inboxCommand struct {
	Stats inboxStatsCommand `cmd:"" help:"Count the failing messages and dead letters of each consumer."`
	List  inboxListCommand  `cmd:"" help:"List messages that failed and will be retried, the earliest failure first."`
}

type inboxStatsCommand struct{}

// consumerTable shows for each consumer the number of failing messages and of dead letters, and
// since when there has been one of each.
var consumerTable = table[record.Consumer]{
	"no message fails, and there are no dead letters",
	page.Columns("CONSUMER", ">FAILING", ">SINCE", ">ATTEMPTS", "NEXT TRY", ">DEAD", ">SINCE"),
	func(p *page.Page, c *record.Consumer) []string {
		failing, attempts, dead := page.Count(c.Failing), "", page.Count(c.Dead)
		if c.Failing > 0 {
			failing, attempts = p.Yellow(failing), strconv.Itoa(c.Attempts)
		}
		if c.Dead > 0 {
			dead = p.Red(dead)
		}
		if c.Redrives > 0 {
			dead += p.Dim(fmt.Sprintf(" (%s redriven)", page.Count(c.Redrives)))
		}
		return []string{page.Safe(c.Name), failing, ageOf(c.FailingSince, c.Now), attempts, nextTry(c.NextAt, c.Now), dead, ageOf(c.DeadSince, c.Now)}
	},
}

// Run prints the backlog of each consumer.
func (inboxStatsCommand) Run(s *session) error {
	consumers, err := queryTx(s, record.Consumers)
	if err != nil {
		return err
	}
	return s.show(map[string]any{"consumers": consumers}, func(p *page.Page) { consumerTable.print(p, consumers) })
}

// ageOf returns the age of the time at, or "" if at is nil.
func ageOf(at *time.Time, now time.Time) string {
	if at == nil {
		return ""
	}
	return page.Age(now.Sub(*at))
}

// nextTry returns when the message is retried, or "" if at is nil. A message that is due is retried
// when the broker delivers it again.
func nextTry(at *time.Time, now time.Time) string {
	switch {
	case at == nil:
		return ""
	case !at.After(now):
		return "at the next delivery"
	}
	return page.Relative(*at, now)
}

type inboxListCommand struct {
	Consumer string `placeholder:"NAME" help:"Of this consumer."`
	Source   string `placeholder:"SOURCE" help:"From this source."`
	limitFlag
	fullFlag
}

// failingTable shows when a message is tried again. "in progress" means that the last attempt has
// no recorded outcome: it still runs, or its process was killed. The database cannot tell which.
var failingTable = table[record.Failing]{
	"no message fails",
	page.Columns("CONSUMER", "SOURCE", "ID", "KEY", ">SINCE", ">ATTEMPTS", "NEXT TRY"),
	func(_ *page.Page, f *record.Failing) []string {
		next, attempts := "in progress", strconv.Itoa(f.Attempts)
		if f.NextAt != nil {
			next = nextTry(f.NextAt, f.Now)
		}
		if f.Hindered > 0 { // failed attempts that are not the fault of the message, usually lock timeouts
			attempts += fmt.Sprintf(" (%d not counted)", f.Hindered)
		}
		return []string{page.Safe(f.Consumer), page.Safe(f.Source), page.Safe(f.ID), page.Safe(f.Key), ageOf(&f.Since, f.Now), attempts, next}
	},
}

// Run lists failing messages, sorted by the time of their first failure. The list cannot be
// continued with --after, because it changes quickly: a handled message disappears from it.
func (c *inboxListCommand) Run(s *session) error {
	return showList(s, c.Limit, "messages", &failingTable, nil, func(ctx context.Context, tx pgx.Tx, limit int) ([]record.Failing, error) {
		found, err := record.FailingMessages(ctx, tx, c.Consumer, c.Source, limit)
		for i := range found {
			abridge(&found[i].Key, c.Full)
		}
		return found, err
	})
}
