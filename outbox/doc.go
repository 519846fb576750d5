// Package outbox publishes messages about a change after the transaction that makes the change has
// committed. If that transaction is rolled back, its messages are never published.
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		… // place the order
//		return outbox.Add(ctx, tx, outbox.Message{Topic: "orders", Key: orderID, Type: "OrderPlaced", Payload: body})
//	})
//
//	err := outbox.NewRelay(pool, publisher, outbox.RelayConfig{}).Run(ctx) // in every process
//
// # Guarantees
//
//   - A message whose transaction commits is published at least once, always under the same ID, or
//     becomes a dead letter with the reason. A message whose transaction does not commit is never
//     published.
//   - Messages of one topic and key are first published in the order in which they were added, even
//     if a transaction commits late. For this, each transaction must lock a row before it calls
//     Add: the same row for all messages of a key, such as the row of the order.
//   - A message that cannot be published blocks the later messages of its topic and key, and no
//     others, until it is published or dead-lettered.
//   - Publishing a message and removing it from the outbox are not atomic. If a relay dies in
//     between, the message is published again. A consumer recognizes a duplicate by its ID: package
//     inbox does so.
//
// # Relays and processes
//
// Run a [Relay] in every process. An outbox has one stream, or several: see [RelayConfig.Streams].
// One process at a time relays each stream. This process has an extra connection whose session
// holds an advisory lock. If the process is killed, another process takes over within about a
// second. If it is frozen, another process takes over after a minute. Behind a pooler in
// transaction mode, which the relay detects, the relay holds a lease of 30 seconds instead of the
// lock. Each of its writing transactions then checks that no other process has taken over.
//
// [Relay.Wake] makes a relay read the outbox at once. So does the commit of an idem.Do in the same
// process whose function has called Add. Without a wake-up the relay polls: 50 ms after it has
// found messages, then at growing intervals up to [RelayConfig.Poll]. Add sends no NOTIFY, because
// NOTIFY serializes all commits of a server.
//
// # Failures
//
// A [Publisher] names the messages that it could not publish in a [PublishError]. The relay retries
// each of them with a doubling backoff, and dead-letters it after [RelayConfig.MaxAttempts]
// attempts. Then the relay continues with the next message of its key. An error that is marked by
// [RetryLater] counts no attempt. See Publisher for errors that name no message. A destination that
// accepts no message at all is unavailable: no attempt is counted, and [RelayConfig.MaxOutage]
// bounds how long messages wait for it.
//
// [List] and [Show] read dead letters. [Redrive] moves a dead letter back to the outbox, under the
// same ID, and [Drop] deletes a dead letter.
//
// # Several destinations
//
// A Publisher that is a [Divider] has several destinations. No destination waits for another.
// [Route] combines several Publishers into a Divider, by topic. Two services that share one
// database each set a Name and Topics in their [RelayConfig]. The table idem.relay_topics records
// which relay has which topics.
//
// # Debezium
//
// Debezium's outbox event router can read idem.outbox in place of a Relay. In that case, run
// [RunDelayed], and delete old rows, which is safe because the router ignores deletions.
// docs/recipes.md shows how to configure the router.
package outbox
