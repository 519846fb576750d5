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
// continues. [RetryLater] marks an error that counts no attempt. After two errors in a row that
// name no message, the relay publishes one message a call: see Publisher. A destination that
// accepts no message is unavailable, and no attempt is counted. [RelayConfig.MaxOutage] bounds how
// long messages wait for it.
//
// A Publisher that is a [Divider] has several destinations. None of them waits for another. [Route]
// combines several Publishers into a Divider, by topic.
//
// # Several relays
//
// Two services with one database, or one service with two brokers, give each [Relay] a Name and its
// own Topics. A relay without Topics publishes every topic that no other relay has. Each message is
// published by one relay. The database records the topics in idem.relay_topics.
//
// # Delayed messages
//
// A message with a [Message.NotBefore] waits in a table of its own. A relay inserts it into the
// outbox when it is due, as if it had been added then. Until then it blocks no other message.
//
// # Dead letters
//
// [List] and [Show] read dead letters. [Redrive] inserts one into the outbox again, under the same
// ID, and [Drop] deletes one. [RelayConfig.Sealer] seals dead letters. Messages in the outbox are
// not sealed: they are about to be published, and Debezium reads them as well.
//
// # Cost
//
// Add is one INSERT for any number of messages. [Queue] adds it to a batch of the caller, where it
// costs no round trip. The row has one index. A relay deletes what it has published. Deleted rows
// do not slow it down, even while an old snapshot keeps vacuum from removing them.
//
// # Debezium
//
// Debezium's outbox event router reads the columns id, aggregatetype, aggregateid, type and payload
// by default; headers and tracingspancontext can be configured. With Debezium, run [RunDelayed]
// instead of a Relay, and delete old rows: the router ignores deletions. payload is bytea, so
// Debezium needs a converter for bytes. The primary key identifies the rows of a publication.
package outbox
