package idemtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A Delivery hands one message to the code on trial, as the client of a broker does. Without an error the message is acknowledged,
// and is not delivered again; with an error it is.
type Delivery func(ctx context.Context, pool *pgxpool.Pool) error

// ConsumerSuite says how a consumer of messages is tried. Deliver and Effects are required.
type ConsumerSuite struct {
	// New makes a database with Pool and what the consumer needs in there. It is called for every trial anew; t ends with the
	// trial. The default is Pool alone.
	New func(t testing.TB) *pgxpool.Pool

	// Deliver delivers a message that can be handled: always the same, id and payload included.
	Deliver Delivery

	// Next delivers another message, with another id, whose payload may well be the same. Without it that is not tried.
	Next Delivery

	// Other delivers another payload under the id of the first message. It is to have no effect, and not to vanish: an error,
	// or a row in idem.dead_letters, tells of it. Without it that is not tried.
	Other Delivery

	// Effects counts the effects that there are by now: rows, and calls of the fakes of other systems.
	Effects func(ctx context.Context, pool *pgxpool.Pool) (int, error)

	// Patience and Within are those of HandlerSuite.
	Patience, Within time.Duration
}

// messagesSQL counts what is on record of messages, whether they are known by package inbox or by a key.
const messagesSQL = `SELECT (SELECT count(*) FROM idem.records WHERE state <> 'failed') + (SELECT count(*) FROM idem.inbox WHERE state = 'handled')`

// Consumer holds a consumer of messages to what package inbox promises, under redelivery and failures of every kind. What is
// broken it reports as Handler does.
func Consumer(t testing.TB, s ConsumerSuite) {
	t.Helper()
	if s.Deliver == nil || s.Effects == nil {
		t.Fatal("idemtest: Deliver and Effects are required")
	}
	u := newSuite(t, s.Patience, s.Within)
	u.early, u.taken, u.forgotten = acknowledgedBehind, everyMessage, onRecordMessage
	u.swallowed = letterless
	u.open = func(sc *scene) *subject {
		on := u.poolFor(sc, s.New, s.Effects)
		on.memory = messagesSQL
		on.request, on.other, on.next = on.calls(delivered(s.Deliver)), on.calls(delivered(s.Other)), on.calls(delivered(s.Next))
		return on
	}
	u.run()
}

// delivered is a delivery as a call.
func delivered(deliver Delivery) Call {
	if deliver == nil {
		return nil
	}
	return func(ctx context.Context, pool *pgxpool.Pool) (any, error) { return "acknowledged", deliver(ctx, pool) }
}

// letterless judges the outcome of another payload under the same id.
func letterless(u *suite, s *subject, given answer) {
	u.Helper()
	var letters int
	if err := s.pool.QueryRow(context.Background(), "SELECT count(*) FROM idem.dead_letters").Scan(&letters); err != nil {
		u.Fatalf("idemtest: count dead letters: %v", err)
	}
	if given.fate == done && letters == 0 {
		u.breaks(otherMessageKept, "it was answered %s, and there is no dead letter", given.brief)
	}
}
