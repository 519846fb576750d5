package ui

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/db"
)

// rows is the maximum number of rows on a page of a list.
const rows = 50

// letters is the data of the list of dead letters.
type letters struct {
	Letters []record.DeadLetter
	Next    string // encoded position of the next page; empty on the last page
}

// readLetters reads one dead letter more than a page shows, to know whether there is a next page.
// The next page begins after the last dead letter shown.
func readLetters(ctx context.Context, tx pgx.Tx, asked url.Values) (any, error) {
	filter := record.DeadLetterFilter{
		Only:  db.LetterName{Side: asked.Get("side"), Consumer: asked.Get("consumer"), Source: asked.Get("source")},
		Class: asked.Get("class"), Limit: rows + 1,
	}
	if after := asked.Get("after"); after != "" && unmark(after, &filter.After) != nil {
		return nil, errMark
	}
	found, err := record.DeadLetters(ctx, tx, filter)
	list := letters{Letters: found}
	if len(found) > rows {
		list.Letters = found[:rows]
		list.Next = mark(found[rows-1].LetterName)
	}
	return list, err
}

// readLetter reads one dead letter, without its contents.
func readLetter(ctx context.Context, tx pgx.Tx, asked url.Values) (any, error) {
	l, err := findLetter(ctx, tx, db.LetterName{Side: asked.Get("side"), Consumer: asked.Get("consumer"), Source: asked.Get("source"), ID: asked.Get("id")})
	return l, err
}

// findLetter returns the dead letter with exactly this name, or a problemError if there is none.
func findLetter(ctx context.Context, tx pgx.Tx, name db.LetterName) (*record.DeadLetter, error) {
	if name.ID == "" {
		return nil, problemError{noLetter}
	}
	found, err := record.DeadLetters(ctx, tx, record.DeadLetterFilter{Only: name, Limit: rows})
	if err != nil {
		return nil, err
	}
	for i := range found { // an empty field of the filter matches any value
		if found[i].LetterName == name {
			return &found[i], nil
		}
	}
	return nil, problemError{noLetter}
}

// linkOf returns the query string of the link to the page of a dead letter.
func linkOf(l db.LetterName) string {
	return query("side", l.Side, "consumer", l.Consumer, "source", l.Source, "id", l.ID)
}

// errMark means that the position in a link to the next page cannot be decoded.
var errMark = problemError{problem{http.StatusBadRequest, "The position in the list is invalid.", "Go back to the beginning of the list."}}

// mark encodes the position at which the next page of a list begins, or the ticket in a login
// cookie.
func mark(place any) string {
	text, err := json.Marshal(place)
	if err != nil {
		panic(err) // a position and a ticket have only strings and numbers
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// unmark is the inverse of mark.
func unmark(text string, place any) error {
	plain, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, place)
}

// acts is the data of the page of audit entries, the latest first.
type acts struct {
	Acts []record.AuditEntry
	More bool
}

// readActs reads one audit entry more than a page shows, to know whether there are more.
func readActs(ctx context.Context, tx pgx.Tx, asked url.Values) (any, error) {
	found, err := record.AuditEntries(ctx, tx, record.AuditFilter{Act: asked.Get("act"), Person: asked.Get("person"), Limit: 2*rows + 1})
	if len(found) > 2*rows {
		return acts{found[:2*rows], true}, err
	}
	return acts{Acts: found}, err
}

// mostInFlight is the maximum number of sessions on the page of keys in flight.
const mostInFlight = 100

// readFlight reads the sessions that hold keys at this moment.
func readFlight(ctx context.Context, tx pgx.Tx, _ url.Values) (any, error) {
	// This statement fails if the schema of idem is missing. The query of Holders would find
	// nothing and succeed.
	if _, err := tx.Exec(ctx, "SELECT FROM idem.leases LIMIT 0"); err != nil {
		return nil, err
	}
	return record.Holders(ctx, tx, 0, mostInFlight)
}

// messages is the data of the page of messages that are not published or handled yet.
type messages struct {
	Topics  []record.Topic
	Partly  bool // the outbox may have more messages than were counted
	Reach   int64
	Relays  []record.Relay
	Lanes   int // the number of lanes that each relay has
	Orphans []record.Orphan

	Held      []record.HeldKey
	Consumers []record.Consumer
	Failing   []record.Failing

	Messages []record.Message
	Next     string // sequence number of the last message; empty if there are no more
}

// readMessages reads the parts of the page one after the other, in one snapshot. Each part reads a
// bounded number of rows.
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
