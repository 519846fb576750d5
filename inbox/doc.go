// Package inbox gives each message its effect once, however often its broker delivers it.
//
//	out, err := inbox.Handle(ctx, pool, "billing", inbox.Message{Source: "orders", ID: id, Payload: body}, func(tx pgx.Tx) error {
//		...                                     // the effect, and what it adds to the outbox
//	})
//	switch out.State {                          // then tell the broker
//	case inbox.Retry:                           // deliver it again, at out.RetryAt
//	default:                                    // Done, Duplicate, Dead: acknowledge it
//	}
//
// [Batch] does so for many messages in one transaction, and [Bulk] gives those that are new to one call of the handler. A thousand
// messages are claimed by one statement, and cost one COMMIT. Package pull has the loop of a consumer that takes messages from a broker.
//
// What it promises:
//
//   - The row of a message, its effect, and the messages that the handler adds to an outbox are committed together, before the
//     message is acknowledged. After any crash either all of it is there or nothing is. That it is handled once rests on the
//     primary key (consumer, source, id) alone.
//   - A message whose handler fails, panics or ends its goroutine is rolled back alone. The others of its batch are committed. The
//     attempt is counted in a transaction of its own, and the message comes again after a backoff. After its last attempt it is a
//     dead letter, with the reason and its payload, and only then is it to be acknowledged.
//   - No attempt is counted for the end of a context, a serialization failure or a deadlock, a locked row, a lost connection, or an
//     unavailable database. A deadline that the handler has set itself does count. While the database answers, a hindered message
//     is postponed alone, for pauses that grow up to 30 seconds, and the others of its batch are committed.
//   - A consumer that fails with many messages in a row pauses, and tries one message after each pause: see [WithCircuit]. So what
//     its handlers need may be unavailable for long, and only the messages that were tried can become dead letters of that.
//   - The id of a message belongs to its payload. The same id with another payload is ErrMismatch and a dead letter of its own. So
//     is a message without an id: it is never handled undeduplicated.
//   - A batch waits once, for a second, for messages that another process is handling. Then they are to be delivered again,
//     uncounted, and the others of the batch are committed. Two batches with the same messages never deadlock over them.
//   - With [WithOrder], a message waits as long as an earlier one of its key is to be tried again.
//
// # Messages that kill their process
//
// Such a message leaves one trace: its broker delivers it again. So a redelivered message is tried alone, in a transaction of its
// own, and the attempt is counted before it begins. That costs two commits for each redelivery, and none for first deliveries.
// Message.Deliveries says which is which; most brokers tell. Without it such a message is not noticed.
//
// The count stands if the attempt fails or never ends: a message that kills its process is a dead letter after as many attempts as
// WithMaxAttempts allows, ErrKilled. So is an innocent message whose process is killed by something else in as many attempts.
// The count is withdrawn if the attempt ends in a way that does not count, unless the database stays unavailable for 5 seconds.
// A process tries one message at a time whose last attempt has no recorded end, so that handlers that run side by side do not pay
// for each other. Such a message waits for up to 5 seconds, and is to be delivered again then.
//
// # Dead letters
//
// They are in idem.dead_letters and stay until a person decides. [List] and [Show] read them. [Redrive] makes one a message again,
// with no attempts, at the end of its key: [RunRedrives] handles it from its own payload, which the consumers of the adapters do by
// themselves, or a delivery does. [Drop] removes one for good, also one that was redriven and is not handled yet.
//
// # Retention
//
// A message is remembered for [WithRetention] after it was handled or died, 7 days by default, and longer where no purge runs: see
// package purge. The retention has to be at least as long as the broker may deliver a message again: a later delivery is a new
// message.
//
// # Handlers
//
// [Context] returns the context of a handler, which has only tx. It ends with that of the call, and has the message and its trace.
//
// A handler makes its writes on tx alone. What it does elsewhere is not undone, and may be done twice: give such a call the
// message's id as its key, or use package operation. A handler that commits by a statement of SQL cannot be undone: its message is a
// dead letter at once, and those behind it in the batch are put back. If the process dies just then, they are lost: do not do
// that. PREPARE TRANSACTION is refused by the server, and the message has failed.
//
// The handlers of a batch share a transaction: what one leaves in it, such as SET LOCAL or a temporary table, the next one finds.
package inbox
