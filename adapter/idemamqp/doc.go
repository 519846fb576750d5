// Package idemamqp publishes the messages of an outbox to RabbitMQ, and handles the messages of
// RabbitMQ with an inbox.
//
//	publisher := idemamqp.NewPublisher(url, idemamqp.PublisherConfig{})
//	relay := outbox.NewRelay(pool, publisher, outbox.RelayConfig{})
//
//	config := idemamqp.ConsumerConfig{}
//	consumer, err := idemamqp.NewConsumer(pool, "billing", url, "orders", handle, config)
//
// # What a Publisher guarantees
//
// If a transaction commits, the broker confirms each of its messages at least once. If not, the
// broker never gets them. In each attempt, the ID of a message is its message-id, and the key is
// its header idem-key. Messages are published as mandatory, so the broker returns a message that no
// queue takes. A message that is confirmed and not returned is in every queue of its route. The
// relay counts an attempt of a message if no queue takes the message, if the broker refuses the
// message (a full queue with overflow=reject-publish), if the broker closes the channel because of
// the message (no such exchange, too large), or if AMQP cannot carry the message. While the broker
// is unavailable or short of memory, no attempt counts. Only a quorum queue on several nodes keeps
// its messages if a node is lost. The Publisher does not check the type of a queue.
//
// The first copies of the messages of one topic and key enter a queue in their order. Each message
// takes a round trip: RabbitMQ may refuse one message and accept the next, so the relay waits for
// the confirmation before it publishes the next message of the key.
//
// # What a Consumer guarantees
//
// Each message that the queue delivers has its effect once, or is a dead letter with the reason:
// see package inbox. The Consumer acknowledges a message after the COMMIT of its effect or its dead
// letter. One frame acknowledges all messages before the first message that waits for another
// attempt.
//
// The Consumer does not return a failed message to the queue, because RabbitMQ would deliver it
// again at once, before all other messages, and count the delivery. The message stays
// unacknowledged until its next attempt is due. So at most ConsumerConfig.Prefetch messages can
// wait for another attempt. While that many messages wait, no other message is handled. If a
// message is unacknowledged for longer than consumer_timeout, half an hour by default, RabbitMQ
// closes the channel and redelivers the messages of the Consumer. The redelivery does no harm, and
// a shorter [inbox.WithBackoff] avoids it.
//
// With ConsumerConfig.Ordered, the effects of the messages of a key are in the order of the queue,
// even if a process dies. Declare the queue with x-single-active-consumer, so that one process at a
// time reads the queue. Without Ordered, there is no order, and any number of processes share the
// work.
//
// A quorum queue counts the deliveries of a message, and a classic queue marks redeliveries. So the
// inbox recognizes a message that kills its process, and dead-letters the message. But each lost
// connection counts as a failed delivery of the unacknowledged messages. When a message reaches
// x-delivery-limit, 20 by default since RabbitMQ 4, RabbitMQ drops the message or moves it to a
// dead letter exchange: raise the limit, or watch the exchange. x-message-ttl and x-max-length drop
// messages that are not handled yet. The retention of the inbox, [inbox.WithRetention], has to
// exceed the longest time that a message may stay in the queue.
package idemamqp
