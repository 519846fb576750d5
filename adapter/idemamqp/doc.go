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
// The broker confirms a message at least once if its transaction commits, and gets it never
// otherwise. Its ID is the message-id in each attempt, and its key the header idem-key. A confirmed
// message is in every queue of its route, because it is published as mandatory. These messages
// count an attempt: one that no queue takes, one that the broker refuses (a full queue with
// overflow=reject-publish), one for which the broker closes the channel (no such exchange, too
// large), and one that AMQP cannot carry. A broker that is unavailable or short of memory counts no
// attempt. Only a quorum queue on several nodes keeps its messages if a node is lost. The Publisher
// does not know the type of a queue.
//
// The messages of one topic and key first enter a queue in their order, with one round trip for
// each, because RabbitMQ may refuse one message and accept the next.
//
// # What a Consumer guarantees
//
// Each message that the queue delivers has its effect once, or is a dead letter with the reason:
// see package inbox. It is acknowledged after the COMMIT of the effect or the dead letter: a batch
// with one frame, up to its first message that waits.
//
// A failed message does not go back to the queue: RabbitMQ would deliver it again at once, before
// all others, and count the delivery. The Consumer keeps it unacknowledged until its next attempt
// is due. So at most ConsumerConfig.Prefetch messages wait, and no other message is handled while
// that many do. After consumer_timeout, half an hour by default, RabbitMQ closes the channel of a
// consumer that has not acknowledged, and redelivers its messages. That does no harm, and a shorter
// [inbox.WithBackoff] avoids it.
//
// With ConsumerConfig.Ordered, the effects of a key are in the order of the queue, also after a
// process died. Declare the queue with x-single-active-consumer, so that one process at a time
// reads it. Without Ordered, there is no order, and any number of processes share the work.
//
// A quorum queue counts the deliveries of a message, and a classic queue marks redeliveries. So a
// message that kills its process becomes a dead letter. But x-delivery-limit, 20 by default from
// RabbitMQ 4 on, drops a message after that many lost connections, or moves it to a dead letter
// exchange: raise the limit, or watch the exchange. x-message-ttl and x-max-length drop messages
// that are not handled yet. The retention of the inbox, [inbox.WithRetention], has to exceed the
// longest time that a message may stay in the queue.
package idemamqp
