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
//   - The messages of one topic and key are handled in the order in which they were added. If the
//     handler of a message fails, only the later messages of its key wait, until the message is
//     handled or dead-lettered.
//   - The inbox counts the attempts, sets the backoff and stores the dead letters, as
//     ConsumerConfig.Options say. The process of the relay also handles redriven dead letters.
//     RelayConfig.MaxAttempts applies only to a message whose topic has a control character,
//     because the inbox refuses such a Source.
//   - The context of a handler ends after half of RelayConfig.PublishTimeout. By default, that is
//     half of 30 seconds. If the handler then fails, an attempt counts. The other messages of the
//     call wait until the handler returns. Increase PublishTimeout for slower handlers.
//   - If all handlers of a consumer fail, the inbox pauses the consumer: see [inbox.WithCircuit].
//     If the database of the consumer is unavailable, no attempt counts.
//
// # Several consumers
//
// A message belongs to one relay and is handled by one consumer. Consumers of different topics have
// a Relay each, or share a Relay through outbox.Route. If two services need the messages of one
// topic, use a broker, or a consumer that adds a copy of each message for each service to the
// outbox in its own database.
package direct
