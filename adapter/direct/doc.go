// Package direct gives what is in an outbox to a consumer in the same program, without a broker: for several services of one Postgres,
// or of several, until there are reasons for a broker.
//
//	billing, err := direct.NewConsumer(billingPool, "billing", func(tx pgx.Tx, m inbox.Message) error {
//		_, err := tx.Exec(inbox.Context(tx), "INSERT INTO invoices …")
//		return err
//	}, direct.ConsumerConfig{})
//
//	err = outbox.NewRelay(shopPool, billing, outbox.RelayConfig{Name: "billing", Topics: []string{"orders"}}).Run(ctx) // in every process
//
// # What is guaranteed
//
//   - Each message has its effect once, in the database of the consumer, as package inbox does it: the effect and the memory of the message are
//     committed together, and only then is it removed from the outbox. Source is its topic.
//   - The messages of one topic and key are handled in the order in which they were added. One whose handler fails holds back its own key
//     alone, until it is handled or dead.
//   - Attempts, pauses and dead letters are the inbox's, by the options of the consumer: its dead letters are those of the consumer, and one
//     that is redriven is handled by the Relay's process. The relay's MaxAttempts count for nothing but a topic that is no name for an inbox.
//   - A handler has half of the relay's PublishTimeout, 15 seconds by default: then its context ends, and if it fails, that is an attempt. Others of
//     the call wait for that long. Raise PublishTimeout for handlers that take longer.
//   - A consumer whose handlers all fail pauses, by its circuit. A database of the consumer that is away counts nothing.
//
// # Several consumers
//
// A message belongs to one relay, and leaves once: one consumer has it. Several consumers of different topics have a Relay each, or share one
// by outbox.Route. Two consumers of one topic are one whose handler adds a message for each of them to an outbox of its own database, or
// a broker.
package direct
