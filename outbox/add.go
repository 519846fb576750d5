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
// Messages of one topic and key are published in the order in which they were added. If two
// transactions add messages of a key, the order of their INSERTs decides, not the order of their
// COMMITs. So each transaction should first lock a row that belongs to the key, such as the row of
// an order. A transaction that has updated the row has locked it.
//
// Add sets the ID of each message without one. If the messages are passed as a slice, as in
// Add(ctx, tx, messages...), Add writes the IDs into the slice. So if the transaction is retried
// with this slice, its messages keep their IDs. NewID returns an ID for a caller that needs it
// before Add. Two messages of one call of Add must have different IDs, even if their topics differ.
//
// If ctx has a Carrier (see WithCarrier), Add stores the headers of the Carrier with each message.
// If a message already has a header of one of these names, Add stores none of the Carrier's headers
// with it. If a message has the header traceparent, Add also writes traceparent and tracestate into
// the column tracingspancontext, which Debezium reads.
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

// Queue adds messages to the outbox as Add does, by a statement that it appends to batch. The
// caller must send the batch in a transaction. Queue costs no round trip of its own. It adds no
// headers of a Carrier, and the commit of its transaction wakes no relay.
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

// rows returns the INSERT of messages, and sets their missing IDs. The parameter carried contains
// the headers of the Carrier.
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

// Carrier writes values of a context, such as a trace context, into the headers of the messages
// that are added with this context. Package idemotel implements a Carrier.
type Carrier interface {
	Carry(ctx context.Context, headers map[string]string)
}

// WithCarrier returns a copy of ctx that contains c. Add calls c with its own context, and stores
// the headers from c with each message. A program usually sets c once on an outer context, such as
// the BaseContext of an http.Server.
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

// headersWith returns the headers of m together with carried, the headers of the Carrier. If a name
// occurs in both, or if both together exceed a limit, it returns the headers of m alone.
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
