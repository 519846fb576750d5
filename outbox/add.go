package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// Add adds messages to the outbox as a part of tx: they are published some time after it has committed, and never if it does
// not. It is one INSERT, however many there are.
//
// A message with a NotBefore waits in a table of its own until it is due. All others cost what they cost without it.
//
// Messages of one topic and key leave in the order in which they were added. Between transactions that is the order of their
// INSERTs, so transactions that tell of one key should hold a lock on a row of that key first, as they do when they have
// changed it.
//
// A message without an ID gets one. Given a slice, as in Add(ctx, tx, messages...), Add writes the IDs into it, so that a
// transaction that is tried again says the same under the same ID. NewID makes one beforehand. One Add has no two messages of the same ID,
// also of two topics.
//
// If a header is called traceparent, its value, and that of tracestate, are also in the column tracingspancontext, from which
// Debezium takes it. With a context of WithCarrier, Add writes them into what it stores, so that consumers know the trace in which
// a message was added. A message that has one of these headers keeps its own.
func Add(ctx context.Context, tx pgx.Tx, messages ...Message) error {
	if tx == nil {
		return errors.New("outbox: tx is nil")
	}
	add, err := rows(messages, carried(ctx))
	if err != nil || len(messages) == 0 {
		return err
	}
	if err := add.In(ctx, tx); err != nil {
		return hint(err)
	}
	txn.OnCommit(tx, wakeAll{})
	return nil
}

// Queue is Add for a batch of the caller's, which is to be sent inside of a transaction: it costs no round trip of its own.
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

// rows makes rows of messages, with what they carry of their context, and gives each its ID.
func rows(messages []Message, carried map[string]string) (*db.AddMessages, error) {
	n := len(messages)
	add := &db.AddMessages{
		IDs: make([]string, n), Topics: make([]string, n), Keys: make([]string, n), Types: make([]string, n),
		Payloads: make([][]byte, n), Headers: make([]string, n), Traces: make([]string, n),
	}
	seen := make(map[string]bool, n)
	for i := range messages {
		m := &messages[i]
		if err := m.check(); err != nil {
			return nil, fmt.Errorf("%w: message %d: %w", ErrInvalid, i, err)
		}
		if m.ID == "" {
			m.ID = NewID()
		}
		id, err := canonical(m.ID)
		if err == nil && seen[id] {
			err = errors.New("another one has the same ID")
		}
		if err != nil {
			return nil, fmt.Errorf("%w: message %d: %w", ErrInvalid, i, err)
		}
		m.ID, seen[id] = id, true
		add.IDs[i], add.Topics[i], add.Keys[i], add.Types[i], add.Payloads[i] = id, m.Topic, m.Key, m.Type, m.Payload
		headers := m.carrying(carried)
		if add.Headers[i], err = db.WriteHeaders(headers); err != nil {
			return nil, fmt.Errorf("%w: message %d: %w", ErrInvalid, i, err)
		}
		add.Traces[i] = traceOf(headers)
		if !m.NotBefore.IsZero() && add.Moments == nil {
			add.Moments = make([]string, n)
		}
		if add.Moments != nil {
			add.Moments[i] = db.WriteMoment(m.NotBefore)
		}
	}
	return add, nil
}

// traceOf returns the trace context of a message as properties of Java, which is how Debezium reads it.
func traceOf(headers map[string]string) string {
	var b strings.Builder
	for _, name := range []string{"traceparent", "tracestate"} {
		if value := headers[name]; value != "" && headers["traceparent"] != "" {
			b.WriteString(name + "=" + inProperties.Replace(value) + "\n")
		}
	}
	return b.String()
}

var inProperties = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`)

// hint adds to an error what its reader can do about it.
func hint(err error) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return fmt.Errorf("outbox: %w", err)
	}
	switch pgErr.Code {
	case "42P01", "3F000", "42703":
		return fmt.Errorf("outbox: the schema is missing or out of date, run the migrations of package migrations: %w", err)
	case "42501":
		return fmt.Errorf("outbox: the role lacks a privilege, docs/operate.md has them: %w", err)
	}
	return fmt.Errorf("outbox: %w", txn.AsUnsupported(err))
}
