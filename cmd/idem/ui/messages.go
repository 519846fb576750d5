package ui

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/record"
)

// messages is the data of the page of messages that are not published or handled yet.
type messages struct {
	Topics  []record.Topic
	Partly  bool // the outbox may have more messages than were counted
	Reach   int64
	Relays  []record.Relay
	Lanes   int // the number of lanes of each relay
	Orphans []record.Orphan

	Held      []record.HeldKey
	Consumers []record.Consumer
	Failing   []record.Failing

	Messages []record.Message
	Next     string // sequence number of the last message; empty if there are no more
}

func readMessages(ctx context.Context, tx pgx.Tx, asked url.Values) (any, error) {
	m := messages{Reach: record.MaxScanned, Lanes: record.Lanes}
	if err := m.list(ctx, tx, asked); err != nil {
		return nil, err
	}
	for _, read := range []func() error{
		func() (err error) { m.Topics, m.Partly, err = record.Topics(ctx, tx, rows); return err },
		func() (err error) { m.Relays, err = record.AllRelays(ctx, tx, rows); return err },
		func() (err error) { m.Orphans, err = record.Orphans(ctx, tx); return err },
		func() (err error) { m.Held, err = record.HeldKeys(ctx, tx, rows); return err },
		func() (err error) { m.Consumers, err = record.Consumers(ctx, tx); return err },
		func() (err error) { m.Failing, err = record.FailingMessages(ctx, tx, "", "", rows); return err },
	} {
		if err := read(); err != nil {
			return nil, err
		}
	}
	m.Consumers = m.Consumers[:min(len(m.Consumers), 2*rows)]
	return m, nil
}

// list reads the messages of the outbox for the current page of the list.
func (m *messages) list(ctx context.Context, tx pgx.Tx, asked url.Values) (err error) {
	filter := record.MessageFilter{Topic: asked.Get("topic"), State: asked.Get("state"), Limit: rows + 1}
	if after := asked.Get("after"); after != "" {
		if filter.After, err = strconv.ParseInt(after, 10, 64); err != nil {
			return errMark
		}
	}
	switch filter.State {
	case "delayed":
		m.Messages, err = record.DelayedMessages(ctx, tx, filter)
	case "", "waiting", "held":
		m.Messages, err = record.Messages(ctx, tx, filter)
	default:
		return problemError{problem{http.StatusBadRequest, "There is no such state of a message.", ""}}
	}
	if len(m.Messages) > rows {
		m.Messages = m.Messages[:rows]
		m.Next = strconv.FormatInt(m.Messages[rows-1].Seq, 10)
	}
	return err
}
