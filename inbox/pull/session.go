// Package pull is the loop of a consumer that takes messages from a broker. The adapters of NATS,
// Kafka and RabbitMQ share it, and so can the adapter of another broker: it implements [Session],
// and [Consumer] does the rest.
//
// A Consumer receives deliveries, handles those that are due by [inbox.Batch], and has the Session
// acknowledge what is committed. It keeps the other deliveries until their next attempt is due. It
// handles redriven dead letters by [inbox.RunRedrives] meanwhile, opens another Session after an
// error, and stops within one batch. broker_test.go has a whole Session, of a broker in memory.
package pull

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/inbox"
)

// ErrPermanent marks an error of a Session, or of opening one, that no other Session can help with.
// Run returns it.
var ErrPermanent = errors.New("pull: the source of messages is closed for good")

// Session is an open connection of an adapter with its broker: a channel, a subscription, a
// membership in a group. D is the broker's own type of a delivery. A Consumer opens a Session,
// calls its methods from one goroutine, and closes it.
//
// The Consumer holds a delivery from the Receive that returns it to the Settle that is given its
// outcome. Meanwhile:
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
	// Receive returns new deliveries, those of one key in their order. It waits for the first one
	// until wait has passed or ctx has ended, and for no other. limit is how many the Consumer has
	// room for; a Session may return more if it has fetched them before. With a limit of 0 Receive
	// waits and returns none: enough messages are due, or the database is unavailable. The messages
	// that wait for another attempt are not counted in limit. The Session bounds them: it returns
	// no more deliveries while too many have no outcome.
	Receive(ctx context.Context, limit int, wait time.Duration) ([]*Delivery[D], error)

	// Settle acknowledges the deliveries among held that have an Outcome. held is all that the
	// Consumer holds, in the order in which Receive has returned it, so that a Session can
	// acknowledge a prefix of it at once. The outcomes are committed: if an acknowledgement is
	// lost, the message is delivered again and is a Duplicate.
	//
	// The Consumer calls Settle after each Receive, also if there is no new outcome, so that a
	// Session can repeat what has failed. ctx does not end when the Consumer stops. Settle has a
	// limit of its own for how long it waits.
	Settle(ctx context.Context, held []*Delivery[D]) error

	// Close releases what is not settled, so that the broker can deliver it at once to another
	// consumer.
	Close()
}

// Delivery is a message that a broker has delivered.
type Delivery[D any] struct {
	Message inbox.Message // the Consumer sets its ID and its Key
	Raw     D             // what the handler is given besides

	// Revoked is nil, or set to true when another consumer may have the message: the Consumer does
	// not handle it any more. The deliveries of a partition share it.
	Revoked *atomic.Bool

	outcome inbox.Outcome
	due     time.Time // of the next attempt
	failed  bool      // the last attempt; a message that waits behind another one has not failed
}

// Outcome returns the outcome of the message, if it is settled: Done, Duplicate and Dead are to be
// acknowledged. Retry has to be delivered again, at RetryAt, and occurs only with Config.Requeue.
func (d *Delivery[D]) Outcome() (outcome inbox.Outcome, settled bool) {
	return d.outcome, d.outcome.State != ""
}

func (d *Delivery[D]) isRevoked() bool { return d.Revoked != nil && d.Revoked.Load() }
