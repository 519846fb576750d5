// Package inbox gives each message its effect once, however often its broker delivers the message.
//
//	m := inbox.Message{Source: "orders", ID: id, Payload: body}
//	out, err := inbox.Handle(ctx, pool, "billing", m, func(tx pgx.Tx) error {
//		...                                     // the effect, and messages for the outbox
//	})
//	switch out.State {                          // then answer the broker
//	case inbox.Retry:                           // deliver it again, at out.RetryAt
//	default:                                    // Done, Duplicate, Dead: acknowledge it
//	}
//
// [Batch] handles many messages in one transaction, and [Bulk] passes the new ones to one call of
// the handler. One statement claims a thousand messages, and one COMMIT commits them. Package pull
// has the loop of a consumer that takes messages from a broker.
//
// # Guarantees
//
// docs/messages-reference.md has each guarantee with its limits, and what each error of a handler
// means.
//
//   - The row of a message, its effect, and the messages that the handler adds to an outbox are
//     committed together, before the message is acknowledged. After a crash, all of them exist or
//     none. The primary key (consumer, source, id) alone guarantees that a message is handled once.
//   - If a handler fails, panics or ends its goroutine, its message is rolled back alone, and the
//     other messages of the batch are committed. The attempt is counted in a transaction of its
//     own, and the message comes again after a backoff. After the last attempt it is a dead letter
//     with the reason and the payload, and only then acknowledged.
//   - A hindered message is postponed uncounted: after a serialization failure, a deadlock, a
//     locked row or a lost connection.
//   - A consumer that fails with many messages in a row pauses: see [WithCircuit].
//   - An ID belongs to one payload. The same ID with another payload is ErrMismatch, and a dead
//     letter of its own. So is a message without an ID; it is never handled.
//   - With [WithOrder], a message waits while an earlier one of its key has to be tried again.
//
// # Messages that kill their process
//
// The only trace of such a message is its redelivery. So a redelivered message is tried alone, in a
// transaction of its own, and its attempt is counted before it begins. Message.Deliveries
// distinguishes redeliveries; without it, a message that kills its process is not noticed. The
// count stands if the attempt fails or never ends, and is withdrawn if the attempt ends in a way
// that does not count. So an innocent message whose process is killed in each attempt becomes a
// dead letter as well.
//
// # Dead letters and retention
//
// Dead letters are in idem.dead_letters until a person decides: see [List], [Redrive] and [Drop].
// [RunRedrives] handles redriven messages from their own payloads, unless a delivery comes first.
//
// The ID of a message is stored for [WithRetention]. That has to be at least as long as the broker
// may deliver a message again: a later delivery is a new message.
//
// # Handlers
//
// A handler makes its writes on tx alone, and [Context] returns its context. Other effects are not
// undone and may happen twice: use the message's ID as the idempotency key of an outside call, or
// use package operation. If a handler commits by a SQL statement, its message is a dead letter at
// once, and later messages of the batch are put back. If the process dies just then, these are
// lost.
//
// The handlers of a batch share a transaction, with all that a handler leaves in it, such as SET
// LOCAL or a temporary table.
package inbox
