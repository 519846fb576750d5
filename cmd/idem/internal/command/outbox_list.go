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

type outboxListCommand struct {
	Topic string `placeholder:"TOPIC" help:"Of this topic."`
	State string `enum:",waiting,held,delayed" default:"" placeholder:"STATE" help:"waiting, held: it could not be published, or is behind one of the same topic and key that could not, or delayed: it is not due yet. Without it: waiting and held."`
	Older span   `placeholder:"SPAN" help:"Added longer ago than this."`
	Limit int    `default:"50" help:"How many at most, up to 10000. Default: ${default}."`
	After int64  `placeholder:"SEQ" help:"Go on behind this one: the last one that was listed."`
	Full  bool   `help:"Show whole keys."`
}

// Help implements kong.HelpProvider.
func (outboxListCommand) Help() string {
	return `Reads messages in the order in which they were added, up to --limit, and nothing of what they say. With --topic and --older it may
read the whole outbox, until --timeout. With --state delayed it is the order in which they are due, and there is no --after.

Example: idem outbox list --state held --topic orders`
}

// Run lists messages.
func (c *outboxListCommand) Run(s *session) error {
	if c.Limit < 1 || c.Limit > 10000 {
		return usage("--limit is between 1 and 10000: go on with --after")
	}
	list := record.Messages
	if c.State == "delayed" {
		list = record.DelayedMessages
		if c.After > 0 {
			return usage("--after is not for --state delayed: raise --limit")
		}
	}
	var found []record.Message
	err := s.limited(func(ctx context.Context, tx pgx.Tx) (err error) {
		found, err = list(ctx, tx, record.MessageFilter{
			Topic: c.Topic, State: c.State, Older: time.Duration(c.Older), After: c.After, Limit: c.Limit + 1,
		})
		return err
	})
	if err != nil {
		return err
	}
	more := len(found) > c.Limit
	if more {
		found = found[:c.Limit]
	}
	shown := shownMessageList{[]shownMessage{}, more}
	for i := range found {
		shown.Messages = append(shown.Messages, newShownMessage(&found[i], c.Full))
	}
	return s.show(shown, func(p *page.Page) { c.text(p, found, more) })
}

// shownMessageList is the JSON of the list.
type shownMessageList struct {
	Messages []shownMessage `json:"messages"`
	More     bool           `json:"more"`
}

// shownMessage is the JSON of a message.
type shownMessage struct {
	Seq      int64      `json:"seq"`
	ID       string     `json:"id"`
	Topic    string     `json:"topic"`
	Key      string     `json:"key"`
	Type     string     `json:"type"`
	AddedAt  time.Time  `json:"added_at"`
	State    string     `json:"state"`
	Attempts int        `json:"attempts"`
	NextAt   *time.Time `json:"next_at"`
	Class    string     `json:"class,omitempty"`
}

func newShownMessage(m *record.Message, wholeKey bool) shownMessage {
	shown := shownMessage{
		Seq: m.Seq, ID: m.ID, Topic: m.Topic, Key: messageKey(m.Key, wholeKey, jsonKey), Type: m.Type, AddedAt: m.AddedAt.UTC(), State: "waiting", Class: m.Class,
	}
	switch {
	case m.Held:
		shown.State = "held"
	case m.Delayed:
		shown.State = "delayed"
	}
	if m.Attempts != nil {
		shown.Attempts = *m.Attempts
	}
	if m.NextAt != nil {
		at := m.NextAt.UTC()
		shown.NextAt = &at
	}
	return shown
}

// messageKey returns the key of a message for output. A message may have no key.
func messageKey(key string, whole bool, show func(string, bool) string) string {
	if key == "" {
		return ""
	}
	return show(key, whole)
}

func (c *outboxListCommand) text(p *page.Page, found []record.Message, more bool) {
	if len(found) == 0 {
		p.Printf("no messages\n")
		return
	}
	var rows [][]string
	for i := range found {
		m := &found[i]
		state, attempts, next := "waiting", "", ""
		switch {
		case m.Delayed:
			state, next = "delayed", relative(*m.NextAt, m.Now)
		case m.Held && m.Attempts == nil:
			state, next = p.Yellow("held"), "behind another"
		case m.Held:
			state, attempts = p.Yellow("held"), strconv.Itoa(*m.Attempts)
			if m.NextAt != nil {
				next = relative(*m.NextAt, m.Now)
			}
		}
		rows = append(rows, []string{strconv.FormatInt(m.Seq, 10), m.ID, page.Safe(m.Topic), messageKey(m.Key, c.Full, shownKey), page.Age(m.Now.Sub(m.AddedAt)),
			state, attempts, next, page.Safe(m.Class)})
	}
	p.Table([]page.Column{{Name: "SEQ", Right: true}, {Name: "ID"}, {Name: "TOPIC"}, {Name: "KEY"}, {Name: "AGE", Right: true}, {Name: "STATE"},
		{Name: "ATTEMPTS", Right: true}, {Name: "NEXT TRY"}, {Name: "CLASS"}}, rows)
	switch {
	case more && c.State == "delayed":
		p.Printf("%s\n", p.Dim(fmt.Sprintf("there are more (%d shown)", len(found))))
	case more:
		p.Printf("%s\n", p.Dim(fmt.Sprintf("there are more: --after %d (%d shown)", found[len(found)-1].Seq, len(found))))
	}
}
