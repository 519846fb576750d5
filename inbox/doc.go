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
// messages are claimed by one statement, and cost one COMMIT.
//
// What it promises:
//
//   - The memory of a message, its effect, and what that adds to an outbox are committed together, before the message is
//     acknowledged. After any crash either all of it is there or nothing is. That it is handled once rests on the primary key
//     (consumer, source, id) alone.
//   - A message whose handler fails, panics or ends its goroutine is rolled back alone. The others of its batch are committed. It
//     is counted, in a transaction of its own, and comes again after a pause that grows. After its last attempt it is a dead letter,
//     with the reason and its payload, and only then is it to be acknowledged.
//   - No attempt is counted for the end of a context, a serialization failure or a deadlock, a locked row, a lost connection, or a
//     database that is away. A deadline that the handler has set itself is the handler's. While the database answers, the message that
//     was hindered is postponed alone, for pauses that grow up to 30 seconds, and the others of its batch are committed.
//   - A consumer that fails with many messages in a row pauses, and tries one message after each pause: see [WithCircuit]. So what its
//     handlers need may be away for long, and no message becomes a dead letter of that but those that were tried.
//   - The id of a message belongs to its payload. The same id with another one is ErrMismatch and a dead letter of its own, never
//     silence. So is a message without an id: it is never handled undeduplicated.
//   - A message that another process has in hand is waited for once, for a second; then it is to be delivered again, uncounted, and
//     the others of its batch are committed. Two batches with the same messages in any order never deadlock over them.
//   - With [WithOrder], a message waits as long as an earlier one of its key is to be tried again.
//
// # Messages that kill their process
//
// Such a message leaves nothing to count. So an attempt at a message that was delivered before is announced first: one more COMMIT
// for a batch of redeliveries, and none for first deliveries. Message.Deliveries says which is which; most brokers tell. Without
// it this is not noticed.
//
// Messages whose attempts have not told how they ended are suspects. They are tried behind the others, in groups that get smaller
// with each such attempt: an eighth of them together, at most 128, then 16, then 2, then one alone. So a thousand that were in hand
// when a process died take eight transactions more, not a thousand. In a process one group of suspects is tried at a time; one
// that waits for long is to be delivered again.
//
// Only attempts that a message has made alone count against it. After as many of those as WithMaxAttempts allows it is a dead letter.
// Before that it has killed its process up to five times more: once at its first delivery, then in company. A message that was
// only there never dies of it.
//
// # Dead letters
//
// They are in idem.dead_letters and stay until a person decides. [List] and [Show] show them, [Drop] removes one. [Redrive] lets one be
// tried again: by [RunRedrives], from the payload that it has, which the consumers of the adapters do by themselves, or by a delivery.
//
// # Retention
//
// A message is remembered for [WithRetention] after it was handled, 7 days by default, and longer where no purge runs: package
// purge does. It has to be at least as long as the broker may deliver a message again.
//
// # Handlers
//
// [Context] returns the context of a handler, which has only tx: it ends with that of the call, and has the message and its trace.
//
// A handler makes its writes on tx alone. What it does elsewhere is not undone, and may be done twice: give that the message's id
// as its key, or use package operation. A handler that commits by a statement of SQL cannot be undone: its message is a dead letter
// at once, and those behind it in the batch are put back. If the process dies just then, they are lost: do not do that.
//
// The handlers of a batch share a transaction: what one leaves in it, such as SET LOCAL or a temporary table, the next one finds.
package inbox
