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
// [Batch] handles many messages in one transaction, and [Bulk] also passes all new messages to one
// call of the handler. For a thousand messages, both need one statement that claims them and one
// COMMIT. Package pull implements the loop of a consumer that takes messages from a broker.
//
// # Guarantees
//
// docs/messages-reference.md describes each guarantee with its limits, and what each error of a
// handler means.
//
//   - The inbox stores a row for each message. This row, the writes of the handler, and the
//     messages that it adds to an outbox are committed together, before the message is
//     acknowledged. After a crash, either all of them exist or none. The primary key (consumer,
//     source, id) of the row alone guarantees that a message is handled once.
//   - If a handler fails, panics or ends its goroutine, only the effect of its message is rolled
//     back. The other messages of the batch are committed. A separate transaction counts the
//     attempt, and the message is tried again after a backoff. After the last attempt the message
//     is stored as a dead letter, with the reason and the payload, and only then acknowledged.
//   - A serialization failure, a deadlock, a locked row or a lost connection counts no attempt. The
//     message is postponed.
//   - After many failed messages in a row, the consumer pauses: see [WithCircuit].
//   - An ID belongs to one payload. A message that has the ID of an earlier message but another
//     payload is never handled: its error is ErrMismatch, and it becomes a separate dead letter. A
//     message without an ID becomes a dead letter as well.
//   - With [WithOrder], a message waits while an earlier message of its key has to be tried again.
//
// # Messages that kill their process
//
// If a message kills its process, the only trace is that the broker delivers the message again. So
// a redelivered message is tried alone in its transaction, and the attempt is counted before it
// begins. Message.Deliveries marks redeliveries; without it, a message that kills its process is
// not noticed. If the attempt fails or never ends, the count remains. If the attempt ends in a way
// that does not count, the inbox takes the count back. A harmless message whose process is killed
// during each attempt becomes a dead letter as well.
//
// # Dead letters and retention
//
// Dead letters remain in the table idem.dead_letters until a person redrives or drops them: see
// [List], [Redrive] and [Drop]. [RunRedrives] handles redriven messages with the payloads of their
// dead letters, unless the broker delivers them first.
//
// [WithRetention] sets how long the ID of a message is stored. This time must be longer than the
// time during which the broker may deliver the message again. A delivery after that time counts as
// a new message.
//
// # Handlers
//
// A handler makes all its writes in the transaction tx, and [Context] returns its context. Effects
// outside of tx are not rolled back and may happen twice. For a call of another service, use the ID
// of the message as the idempotency key, or use package operation. If a handler sends a COMMIT
// statement, its message becomes a dead letter at once. The inbox then deletes the rows of later
// messages of the batch, so that they are handled. If the process dies before that, these messages
// are lost.
//
// The handlers of a batch share a transaction. So a handler also sees what earlier handlers have
// left in it, such as a SET LOCAL or a temporary table.
package inbox
