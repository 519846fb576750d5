// Package pull is the loop of a consumer that takes messages from a broker. The adapters of NATS,
// Kafka and RabbitMQ share it, and so can the adapter of another broker: it implements [Session],
// and [Consumer] does the rest.
//
// A Consumer receives deliveries, passes those that are due to [inbox.Batch], and has the Session
// acknowledge the committed ones. It keeps the other deliveries until their next attempt is due.
// Meanwhile [inbox.RunRedrives] handles redriven dead letters. After an error the Consumer opens
// another Session. When it is stopped, it finishes at most the current batch. broker_test.go has a
// whole Session, of a broker in memory.
package pull

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/inbox"
)

// ErrPermanent marks an error that opening another Session cannot fix. Run returns the error.
var ErrPermanent = errors.New("pull: the source of messages is closed for good")

// Session is an open connection of an adapter with its broker: a channel, a subscription, a
// membership in a group. D is the broker's own type of a delivery. A Consumer opens a Session,
// calls its methods from one goroutine, and closes it.
//
// The Consumer holds a delivery from Receive until Settle has acknowledged the delivery. Meanwhile:
//
//   - The broker must not give the message to another consumer. If the broker has a deadline for
//     acknowledgements, the Session extends it in a goroutine of its own.
//   - Receive does not return the message again. If the broker delivers it again, the Session
//     settles the latest delivery.
//   - If the broker gives the message to another consumer all the same, as in a rebalance, the
//     Session revokes the delivery: see Delivery. It does so during a Receive, or in a Close.
//
// After an error of Receive or Settle the Consumer closes the Session, forgets what it holds, and
// opens another one after a backoff. So the broker has to deliver again what is not acknowledged. A
// Session whose client reconnects by itself logs such errors and goes on.
type Session[D any] interface {
	// Receive returns new deliveries, those of one key in their order. It returns as soon as it has
	// one delivery, when wait has passed, or when ctx is done. limit is how many deliveries the
	// Consumer has room for. A Session returns more only if it had to fetch more to keep the order.
	// A limit of 0 means that a full batch is ready: Receive waits and returns none. limit does not
	// count deliveries that wait for another attempt. The Session sets their maximum, and returns
	// no deliveries above it.
	Receive(ctx context.Context, limit int, wait time.Duration) ([]*Delivery[D], error)

	// Settle acknowledges the deliveries among held that have an Outcome. held is all that the
	// Consumer holds, in the order in which Receive has returned it, so that a Session can
	// acknowledge a prefix of it at once. The outcomes are committed: if an acknowledgement is
	// lost, the message is delivered again and is a Duplicate.
	//
	// The Consumer calls Settle after each Receive that returns no error, also if there is no new
	// outcome. It forgets the deliveries with an outcome after Settle: a Session that repeats
	// failed acknowledgements keeps them itself. ctx does not end when the Consumer stops. Settle
	// limits how long it waits.
	Settle(ctx context.Context, held []*Delivery[D]) error

	// Close releases what is not settled, so that the broker can deliver it at once to another
	// consumer.
	Close()
}

// Delivery is a message that a broker has delivered.
type Delivery[D any] struct {
	Message inbox.Message // the Consumer sets its ID and its Key
	Raw     D             // the delivery of the client of the broker, for the handler

	// Revoked is set to true by the Session when another consumer may have the message. The
	// Consumer then drops the delivery. Several deliveries may share it, and it may be nil.
	Revoked *atomic.Bool

	outcome inbox.Outcome
	due     time.Time // of the next attempt
	failed  bool      // the last attempt failed; waiting behind another message is no failure
}

// Outcome returns the outcome of the message, if it is settled: Done, Duplicate and Dead are to be
// acknowledged. Retry has to be delivered again, at RetryAt, and occurs only with Config.Requeue.
func (d *Delivery[D]) Outcome() (outcome inbox.Outcome, settled bool) {
	return d.outcome, d.outcome.State != ""
}

func (d *Delivery[D]) isRevoked() bool { return d.Revoked != nil && d.Revoked.Load() }
