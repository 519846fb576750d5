package idemtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A Delivery passes one message to the code under test, as the client library of a broker does. If
// the Delivery returns nil, the message is acknowledged and not delivered again. If the Delivery
// returns an error, the message is redelivered.
type Delivery func(ctx context.Context, pool *pgxpool.Pool) error

// ConsumerSuite configures the test suite Consumer. The fields Deliver and Effects are required.
type ConsumerSuite struct {
	// New calls Pool to create a database, sets up everything in it that the consumer needs, and
	// returns the pool. The suite calls New once for every trial. The cleanups of t run at the end
	// of that trial. If New is nil, the suite calls Pool.
	New func(t testing.TB) *pgxpool.Pool

	// Deliver delivers a message that the consumer can handle. It must deliver the same message
	// each time, id and payload included.
	Deliver Delivery

	// Next delivers a message with another id. The payload may be the same. If Next is nil, the
	// suite skips the trial of a second message.
	Next Delivery

	// Other delivers another payload under the id of the first message. The consumer must not
	// handle it, and must not discard it silently: it must return an error or insert a row into
	// idem.dead_letters. If Other is nil, the suite skips the trial of a changed payload.
	Other Delivery

	// Effects returns the number of effects so far. It counts the rows that the consumer wrote to
	// the database and the calls that it made to the fakes of other systems.
	Effects func(ctx context.Context, pool *pgxpool.Pool) (int, error)

	// Patience and Within mean the same as in HandlerSuite.
	Patience, Within time.Duration
}

// messagesSQL counts the messages that have been handled. It reads two tables, because a consumer
// can record a message with package inbox or under an idempotency key.
const messagesSQL = `SELECT (SELECT count(*) FROM idem.records WHERE state <> 'failed') + (SELECT count(*) FROM idem.inbox WHERE state = 'handled')`

// Consumer tests that a consumer of messages keeps the promises of package inbox. It redelivers
// messages and injects all faults. Like Handler, it reports each broken promise once, by t.Errorf.
func Consumer(t testing.TB, s ConsumerSuite) {
	t.Helper()
	if s.Deliver == nil || s.Effects == nil {
		t.Fatal("idemtest: Deliver and Effects are required")
	}
	u := newSuite(t, s.Patience, s.Within)
	u.early, u.taken, u.unrecorded = acknowledgedAfter, everyMessage, messageRecorded
	u.checkOther = requireDeadLetter
	u.open = func(sc *trialTB) *subject {
		on := u.poolFor(sc, s.New, s.Effects)
		on.countSQL = messagesSQL
		on.request, on.other, on.next = on.calls(asCall(s.Deliver)), on.calls(asCall(s.Other)), on.calls(asCall(s.Next))
		return on
	}
	u.run()
}

// asCall converts deliver to a Call that returns "acknowledged". If deliver is nil, asCall returns
// nil.
func asCall(deliver Delivery) Call {
	if deliver == nil {
		return nil
	}
	return func(ctx context.Context, pool *pgxpool.Pool) (any, error) { return "acknowledged", deliver(ctx, pool) }
}

// requireDeadLetter reports a broken promise if the consumer acknowledged another payload under the
// same message id and wrote no dead letter.
func requireDeadLetter(u *suite, s *subject, given answer) {
	u.Helper()
	var letters int
	if err := s.pool.QueryRow(context.Background(), "SELECT count(*) FROM idem.dead_letters").Scan(&letters); err != nil {
		u.Fatalf("idemtest: count dead letters: %v", err)
	}
	if given.outcome == done && letters == 0 {
		u.breaks(otherMessageKept, "it was answered %s, and there is no dead letter", given.brief)
	}
}
