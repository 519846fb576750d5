// Package outbox publishes messages about a change after the transaction of the change has
// committed. A message of a transaction that is rolled back is never published.
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
//   - The first publications of the messages of one topic and key follow the order in which their
//     transactions added them, if each transaction holds a lock on a row of that key when it calls
//     Add. A transaction that commits late is no exception.
//   - A message that cannot be published blocks its own topic and key, and no other, until it is
//     published or dead-lettered.
//   - Publishing and removing are not atomic. If a relay dies in between, messages are published
//     again. The consumer recognizes a duplicate by its ID: package inbox does so.
//
// # Relays and processes
//
// Run a [Relay] in every process. One process at a time relays each stream. Its relay has a
// connection of its own, whose session holds an advisory lock. If the process is killed, another
// takes over within about a second; if it is frozen, after a minute. Behind a pooler in transaction
// mode, which the relay detects, the relay holds a lease of 30 seconds instead, and each of its
// writing transactions checks that the lanes are still its own.
//
// A relay reads at once when it is woken: by [Relay.Wake], or by the commit of an idem.Do in the
// same process whose function has called Add. Otherwise it polls, every 50 ms at first and then up
// to [RelayConfig.Poll] apart. Add sends no NOTIFY, because NOTIFY serializes all commits of a
// server.
//
// # Failures
//
// A [Publisher] names the messages that it could not publish in a [PublishError]. Each waits for a
// backoff that doubles, and is dead-lettered after [RelayConfig.MaxAttempts] attempts; then its key
// continues. [RetryLater] marks an error that counts no attempt. See Publisher for errors that name
// no message. A destination that accepts no message is unavailable, and no attempt is counted.
// [RelayConfig.MaxOutage] bounds how long messages wait for it.
//
// [List] and [Show] read dead letters. [Redrive] inserts one into the outbox again, under the same
// ID, and [Drop] deletes one.
//
// # Several destinations
//
// A Publisher that is a [Divider] has several destinations. None of them waits for another. [Route]
// combines several Publishers into a Divider, by topic. Two services with one database give each
// [Relay] a Name and its own Topics, which the database records in idem.relay_topics.
//
// # Debezium
//
// Debezium's outbox event router can read idem.outbox. Then run [RunDelayed] instead of a Relay,
// and delete old rows: the router ignores deletions. docs/recipes.md has its configuration.
package outbox
