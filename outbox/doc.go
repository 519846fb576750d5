// Package outbox tells others what has happened, after the transaction in which it happened has committed, and never without it.
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		… // the order is placed
//		return outbox.Add(ctx, tx, outbox.Message{Topic: "orders", Key: orderID, Type: "OrderPlaced", Payload: body})
//	})
//
//	err := outbox.NewRelay(pool, publisher, outbox.RelayConfig{}).Run(ctx) // in every process
//
// # What is guaranteed
//
//   - A message whose transaction commits is published at least once, always under the same ID, or becomes a dead letter with
//     the reason. A message whose transaction does not commit is never published.
//   - The messages of one topic and key are first published in the order in which their transactions have added them, if these
//     transactions hold a lock on a row of that key meanwhile. That is also so for a transaction that commits late.
//   - A message that cannot be published holds back its own topic and key, and no other, until it is published or dead.
//   - No commit covers publishing and removing: if a relay dies in between, messages are published again. The consumer knows a
//     message again by its ID: package inbox does.
//
// # Who relays
//
// Run a [Relay] in every process. Of each stream one works. It has a connection of its own, which holds an advisory lock on its number.
// If it is killed another one follows within about a second, if it is frozen after a minute. Behind a pooler in transaction
// mode, which the relay recognizes, it has a lease of 30 seconds instead, and its transactions are fenced.
//
// A relay reads at once when it is woken ([Relay.Wake], or the commit of an idem.Do in the same process whose function has called Add),
// and otherwise after 50 ms up to [RelayConfig.Poll]. There is no NOTIFY in your transaction: that makes all commits of a server
// wait for each other.
//
// # What fails
//
// A [Publisher] names the messages that it could not publish by a [PublishError]. Each waits for a backoff that doubles, and is a
// dead letter after [RelayConfig.MaxAttempts] attempts; then its key goes on. [RetryLater] marks an error that counts no attempt.
// After two errors in a row that name no message, the relay publishes one message a call: see Publisher. A destination that accepts
// none is unavailable, and no attempt is counted. [RelayConfig.MaxOutage] bounds how long messages wait for it.
//
// A Publisher that is a [Divider] has several destinations, and none of them waits for another; [Route] makes one of several
// Publishers, by topic.
//
// # Several relays
//
// Two services with one database, or one that has two brokers, give each [Relay] a Name and the Topics that are its own. A relay without
// has every topic that no other has. Each message is published by one of them. They are on record in idem.relay_topics.
//
// # Later
//
// A message with a [Message.NotBefore] leaves when it is due, as if it had been added then: it holds nothing back meanwhile. It waits in
// a table of its own, and a relay inserts it in the outbox.
//
// # Dead letters
//
// [List] and [Show] show dead letters, [Redrive] gives one to the outbox again under the same ID, [Drop] removes it. They are sealed
// where [RelayConfig.Sealer] is set. Messages in the outbox are not: they are about to leave, and Debezium reads them as well.
//
// # Cost
//
// Add is one INSERT for any number of messages, and [Queue] puts it into a batch of yours, where it costs no round trip. The
// row has one index. A relay removes what it has published; what is deleted is not in its way, even while a transaction keeps an old
// snapshot open and vacuum can remove nothing.
//
// # Debezium instead
//
// The columns id, aggregatetype, aggregateid, type and payload are those that Debezium's outbox event router reads by default,
// headers and tracingspancontext can be added. Run no Relay then, but [RunDelayed], and delete what is old: the router ignores deletions. payload is
// bytea, so it needs a converter for bytes. A publication knows the rows by their primary key.
package outbox
