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
//   - A message whose transaction commits is published, at least once, always under the same ID, or becomes a dead letter with
//     the reason. One whose transaction does not commit is never published.
//   - The messages of one topic and key leave in the order in which their transactions have added them, if those hold a lock on a
//     row of that key meanwhile, as they do when they change it. That is also so for a transaction that commits late.
//   - A message that cannot be published holds back its own topic and key, and no other, until it is published or dead.
//   - Between publishing and removing there is no commit that covers both: if a relay dies there, its batch is published again. The
//     consumer knows a message again by its ID: package inbox does. Each message is seen first in its place all the same.
//
// # Who relays
//
// A [Relay] is run in every process, and of each stream one works. It has a connection of its own, which holds an advisory lock
// on its number; one that is killed is followed within about a second, one that is frozen after a minute. Behind a pooler in
// transaction mode, which is recognised, there is a lease of 30 seconds instead, and transactions that are fenced by it. So there is
// while a server without a pooler refuses the connection: the relay asks again every 8 seconds.
//
// It looks again as soon as there is something in its hands, at once when it is woken ([Relay.Wake], or the commit of an idem.Do in
// the same process whose function has called Add), and after 50 ms up to [RelayConfig.Poll] otherwise. There is no NOTIFY in your transaction: that makes all
// commits of a server wait for each other.
//
// # What fails
//
// A [Publisher] names the messages that it could not publish by a [PublishError]. Each is tried again after a pause that doubles, and is a
// dead letter after [RelayConfig.MaxAttempts]; then its key goes on. After an error that names none, or a call whose context has ended,
// messages are published one at a time, more of them from one pause to the next. If all fail the broker is away, and no attempt is
// counted. A message that fails alone before and after another one is published is to blame, and from then on is tried alone. It never counts an
// attempt unless another message was published before and after that: without any, it waits as for a broker that is away.
// A Publisher that panics is given the messages one by one, and the one at which it panics has failed.
//
// A destination that is away counts no attempt either: the Publisher says so by an [AwayError]. [RelayConfig.MaxAway] bounds for how
// long its messages wait. A Publisher that is a [Divider] has several destinations, and one that is slow or away holds up no other;
// [Route] makes one of several Publishers, by topic.
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
