// Package pull implements the loop of a consumer that takes messages from a broker. The adapters of
// NATS, Kafka and RabbitMQ share this loop. An adapter of another broker can use it as well: it
// implements [Session], and [Consumer] does the rest.
//
// A Consumer receives deliveries. It calls [inbox.Batch] with those whose attempt is due now, and
// lets the Session acknowledge the committed ones. It keeps the other deliveries until their next
// attempt is due. At the same time [inbox.RunRedrives] handles redriven dead letters. After an
// error the Consumer opens another Session. When the Consumer is stopped, it finishes at most the
// current batch. broker_test.go contains a complete Session, for a broker in memory.
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

// Session is an open connection of an adapter to its broker, such as a channel, a subscription, or
// a membership in a group. D is the type of a delivery in the client library of the broker. A
// Consumer opens a Session, calls its methods from one goroutine, and closes it.
//
// The Consumer keeps a delivery in memory after Receive until Settle has acknowledged it. During
// that time:
//
//   - The broker must not give the message to another consumer. If the broker has a deadline for
//     acknowledgements, the Session extends it in a goroutine of its own.
//   - Receive does not return the message again. If the broker delivers the message again, the
//     Session acknowledges the latest delivery.
//   - If the broker gives the message to another consumer nevertheless, as in a rebalance, the
//     Session revokes the delivery: see Delivery.Revoked. It does so during a Receive, or in Close.
//
// If Receive or Settle returns an error, the Consumer closes the Session, forgets the deliveries
// that it keeps, and opens another Session after a backoff. So the broker has to deliver
// unacknowledged messages again. If the client library reconnects by itself, the Session logs such
// errors and continues.
type Session[D any] interface {
	// Receive returns new deliveries. The deliveries of one key are in their order. Receive returns as
	// soon as it has one delivery, when wait has passed, or when ctx is done. limit is the number of
	// deliveries for which the Consumer has room. A Session returns more only if it had to fetch more
	// to keep the order. If limit is 0, a full batch is ready: Receive waits for the duration wait and
	// returns no delivery. Deliveries that wait for another attempt do not use up limit. The Session
	// sets a maximum for them, and returns no deliveries beyond that maximum.
	Receive(ctx context.Context, limit int, wait time.Duration) ([]*Delivery[D], error)

	// Settle acknowledges the deliveries in held that have an Outcome. The list held contains all
	// deliveries that the Consumer keeps, in the order in which Receive has returned them. So a
	// Session can acknowledge a prefix of the list at once. The outcomes are committed. If an
	// acknowledgement is lost, the message is delivered again and is a Duplicate.
	//
	// The Consumer calls Settle after each Receive that returns no error, even if there is no new
	// outcome. After Settle, the Consumer forgets the deliveries with an outcome. So if a Session
	// wants to repeat a failed acknowledgement, it must keep the delivery itself. ctx does not end
	// when the Consumer is stopped, so Settle must limit how long it waits.
	Settle(ctx context.Context, held []*Delivery[D]) error

	// Close releases the deliveries that are not acknowledged, so that the broker can deliver them to
	// another consumer at once.
	Close()
}

// Delivery is a message that a broker has delivered.
type Delivery[D any] struct {
	Message inbox.Message // the Consumer sets its ID and its Key
	Raw     D             // the delivery in the type of the client library, which the handler receives

	// The Session sets Revoked to true when another consumer may have the message. Then the Consumer
	// drops the delivery. Several deliveries may share one Revoked, and it may be nil.
	Revoked *atomic.Bool

	outcome inbox.Outcome
	due     time.Time // when the next attempt is due
	failed  bool      // the last attempt failed; waiting behind another message is no failure
}

// Outcome returns the outcome of the message, and whether there is one yet. If its State is Done,
// Duplicate or Dead, the message is to be acknowledged. If it is Retry, the message is to be
// delivered again at RetryAt. Retry occurs only with Config.Requeue.
func (d *Delivery[D]) Outcome() (outcome inbox.Outcome, settled bool) {
	return d.outcome, d.outcome.State != ""
}

func (d *Delivery[D]) isRevoked() bool { return d.Revoked != nil && d.Revoked.Load() }
