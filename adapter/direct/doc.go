// Package direct passes the messages of an outbox to a consumer in the same program, without a
// broker. It suits several services with one or several Postgres servers, until there are reasons
// for a broker.
//
//	billing, err := direct.NewConsumer(billingPool, "billing", func(tx pgx.Tx, m inbox.Message) error {
//		_, err := tx.Exec(inbox.Context(tx), "INSERT INTO invoices …")
//		return err
//	}, direct.ConsumerConfig{})
//
//	relay := outbox.NewRelay(shopPool, billing, outbox.RelayConfig{Name: "billing", Topics: []string{"orders"}})
//	err = relay.Run(ctx) // in every process
//
// # Guarantees
//
//   - Each message has its effect once, in the database of the consumer. Package inbox commits the
//     effect together with the record of the message. Only then does the relay remove the message
//     from the outbox. The Source of the message in the inbox is its topic.
//   - The messages of one topic and key are handled in the order in which they were added. A
//     message whose handler fails blocks its own key, and no other, until it is handled or
//     dead-lettered.
//   - Attempts, backoff and dead letters are those of the inbox, by the options of the consumer.
//     The process of the relay also handles redriven dead letters. RelayConfig.MaxAttempts applies
//     only to a message whose topic has a control character, because the inbox refuses such a
//     Source.
//   - A handler has half the time of RelayConfig.PublishTimeout. By default that half is 15
//     seconds. Then the context of the handler ends. If the handler fails, an attempt counts. The
//     other messages of the call wait until the handler returns. Increase PublishTimeout for slower
//     handlers.
//   - The circuit of the inbox pauses a consumer whose handlers all fail. If the database of the
//     consumer is unavailable, no attempt counts.
//
// # Several consumers
//
// A message belongs to one relay and is handled by one consumer. Several consumers of different
// topics have a Relay each, or share one through outbox.Route. For two consumers of one topic, use
// a consumer that adds a message for each of them to an outbox of its own database, or use a
// broker.
package direct
