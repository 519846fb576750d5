package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// Add adds messages to the outbox as a part of tx. A relay publishes them some time after tx has
// committed, and never if tx is rolled back. Add is one INSERT for any number of messages.
//
// A message with a NotBefore is inserted into a table of its own and waits there until it is due.
//
// Messages of one topic and key are published in the order in which they were added. Between
// transactions this is the order of their INSERTs. So a transaction that adds a message of a key
// should hold a lock on a row of that key first, as a transaction does that has changed the row.
//
// Add sets the ID of a message without one. Given a slice, as in Add(ctx, tx, messages...), it
// writes the IDs into the slice, so a transaction that is run again adds its messages under the
// same IDs. NewID returns an ID beforehand. Two messages of one Add cannot have the same ID, even
// under two topics.
//
// With a context of WithCarrier, Add stores the headers of the Carrier with each message. A message
// that has one of these headers itself gets none of them. If a message has the header traceparent,
// Add also writes traceparent and tracestate into the column tracingspancontext, which Debezium
// reads.
//
// Add returns ErrInvalid if a message exceeds a limit or has an ID that is not a UUID.
func Add(ctx context.Context, tx pgx.Tx, messages ...Message) error {
	if tx == nil {
		return errors.New("outbox: tx is nil")
	}
	add, err := rows(messages, carrierHeaders(ctx))
	if err != nil || len(messages) == 0 {
		return err
	}
	if err := add.In(ctx, tx); err != nil {
		return hint(err)
	}
	txn.OnCommit(tx, wakeAll{})
	return nil
}

// Queue is Add for a batch that the caller sends in a transaction. It costs no round trip of its
// own.
func Queue(batch *pgx.Batch, messages ...Message) error {
	if batch == nil {
		return errors.New("outbox: batch is nil")
	}
	add, err := rows(messages, nil)
	if err == nil && len(messages) > 0 {
		add.To(batch)
	}
	return err
}

// rows returns the INSERT of messages, and sets their IDs. carried are headers of the Carrier.
func rows(messages []Message, carried map[string]string) (*db.AddMessages, error) {
	n := len(messages)
	add := &db.AddMessages{
		IDs: make([]string, n), Topics: make([]string, n), Keys: make([]string, n), Types: make([]string, n),
		Payloads: make([][]byte, n), Headers: make([]string, n), Traces: make([]string, n),
	}
	seen := make(map[string]bool, n)
	for i := range messages {
		m := &messages[i]
		err := m.check()
		if err == nil && m.ID == "" {
			m.ID = NewID()
		}
		id := ""
		if err == nil {
			id, err = canonicalID(m.ID)
		}
		if err == nil && seen[id] {
			err = errors.New("an earlier message of the call has the same ID")
		}
		headers := m.headersWith(carried)
		if err == nil {
			add.Headers[i], err = db.WriteHeaders(headers)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: message %d: %w", ErrInvalid, i, err)
		}
		m.ID, seen[id] = id, true
		add.IDs[i], add.Topics[i], add.Keys[i], add.Types[i], add.Payloads[i] = id, m.Topic, m.Key, m.Type, m.Payload
		add.Traces[i] = traceProperties(headers)
		if !m.NotBefore.IsZero() && add.Moments == nil {
			add.Moments = make([]string, n)
		}
		if add.Moments != nil {
			add.Moments[i] = db.WriteMoment(m.NotBefore)
		}
	}
	return add, nil
}

// traceProperties returns the trace context in headers in the format of a Java properties file,
// which Debezium expects.
func traceProperties(headers map[string]string) string {
	if headers["traceparent"] == "" {
		return ""
	}
	var b strings.Builder
	for _, name := range []string{"traceparent", "tracestate"} {
		if value := headers[name]; value != "" {
			b.WriteString(name + "=" + escapeProperty.Replace(value) + "\n")
		}
	}
	return b.String()
}

var escapeProperty = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`)

// Carrier writes headers that messages take over from the context in which they are added, such as
// a trace context. Package idemotel has one.
type Carrier interface {
	Carry(ctx context.Context, headers map[string]string)
}

// WithCarrier returns a context with which Add stores the headers of c with each message. A program
// sets it on an outer context, such as the BaseContext of an http.Server. Add calls c with the
// context that it was given.
func WithCarrier(ctx context.Context, c Carrier) context.Context {
	return context.WithValue(ctx, carrierKey{}, c)
}

type carrierKey struct{}

// carrierHeaders returns the headers of the Carrier in ctx.
func carrierHeaders(ctx context.Context) map[string]string {
	c, ok := ctx.Value(carrierKey{}).(Carrier)
	if !ok {
		return nil
	}
	headers := map[string]string{}
	c.Carry(ctx, headers)
	return headers
}

// headersWith returns the headers of m together with those of the Carrier. If the two have a name
// in common, or exceed a limit together, it returns the headers of m alone.
func (m *Message) headersWith(carried map[string]string) map[string]string {
	if len(carried) == 0 {
		return m.Headers
	}
	larger := *m
	larger.Headers = maps.Clone(carried)
	maps.Copy(larger.Headers, m.Headers)
	if len(larger.Headers) < len(m.Headers)+len(carried) || larger.check() != nil {
		return m.Headers
	}
	return larger.Headers
}
