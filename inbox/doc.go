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
//   - The row of a message, its effect, and the messages that the handler adds to an outbox are
//     committed together, before the message is acknowledged. After a crash, all of them exist or
//     none. The primary key (consumer, source, id) alone guarantees that a message is handled once.
//   - If a handler fails, panics or ends its goroutine, its message is rolled back alone, and the
//     other messages of the batch are committed. The attempt is counted in a transaction of its
//     own, and the message comes again after a backoff. After the last attempt it is a dead letter
//     with the reason and the payload, and only then acknowledged.
//   - No attempt is counted for the end of a context, a serialization failure, a deadlock, a locked
//     row, a lost connection, or an unavailable database. An exceeded deadline of the handler's own
//     is counted. While the database answers, a hindered message is postponed alone, with a backoff
//     of up to 30 seconds, and the other messages of the batch are committed.
//   - A consumer that fails with many messages in a row pauses, and probes with few messages after
//     each pause: see [WithCircuit]. So a service that handlers need may be unavailable for long,
//     and few messages become dead letters.
//   - An ID belongs to one payload. The same ID with another payload is ErrMismatch, and a dead
//     letter of its own. So is a message without an ID; it is never handled.
//   - A batch waits once, for a second, for messages that another process is handling. Then it
//     postpones them uncounted and commits the others. Two batches with the same messages do not
//     deadlock over them.
//   - With [WithOrder], a message waits while an earlier one of its key has to be tried again.
//
// # Messages that kill their process
//
// The only trace of such a message is its redelivery. So a redelivered message is tried alone, in a
// transaction of its own, and its attempt is counted before it begins. That costs two commits for
// each redelivery, and nothing for first deliveries. Message.Deliveries distinguishes them; most
// brokers report it. Without it, a message that kills its process is not noticed.
//
// The count stands if the attempt fails or never ends. A message that kills its process is a dead
// letter after WithMaxAttempts attempts, with ErrKilled. So is an innocent message whose process is
// killed in that many attempts. If the attempt ends in a way that does not count, the count is
// withdrawn, unless the database stays unavailable for 5 seconds. A process tries one message at a
// time whose last attempt has no recorded end, so that a kill counts against that message alone.
// Such a message waits for up to 5 seconds, and then has to be delivered again.
//
// # Dead letters
//
// They are in idem.dead_letters until a person decides. [List] and [Show] read them. [Redrive]
// makes one a message again, at the end of its key, with no attempts counted. [RunRedrives] handles
// it from its own payload, unless a delivery comes first. The consumers of the adapters call
// RunRedrives. [Drop] deletes a dead letter, also one that was redriven and is not handled yet.
//
// # Retention
//
// The ID of a message is stored for [WithRetention] after the message was handled or dead-lettered,
// 7 days by default, and longer if no purge runs: see package purge. The retention has to be at
// least as long as the broker may deliver a message again: a later delivery is a new message.
//
// # Handlers
//
// [Context] returns the context of a handler from its tx. It ends with the context of the call, and
// has the message and its trace.
//
// A handler makes its writes on tx alone. Other effects are not undone and may happen twice: use
// the message's ID as the idempotency key of an outside call, or use package operation. If a
// handler commits by a SQL statement, its message is a dead letter at once, and later messages of
// the batch are put back. If the process dies just then, these are lost. The server refuses PREPARE
// TRANSACTION, and the attempt fails.
//
// The handlers of a batch share a transaction, with all that a handler leaves in it, such as SET
// LOCAL or a temporary table.
package inbox
