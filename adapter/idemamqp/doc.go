// Package idemamqp takes messages out of an outbox to RabbitMQ, and from RabbitMQ into an inbox.
//
//	relay := outbox.NewRelay(pool, idemamqp.NewPublisher(url, idemamqp.PublisherConfig{}), outbox.RelayConfig{})
//
//	consumer, err := idemamqp.NewConsumer(pool, "billing", url, "orders", handle, idemamqp.ConsumerConfig{})
//
// # What a Publisher guarantees
//
// Every message whose transaction has committed is confirmed by the broker at least once, and none is sent whose transaction has not.
// Its id is the message-id in each try, its key the header idem-key. A confirmed message is in every queue that its route leads to: it is sent
// as mandatory, and one that no queue takes is blamed, as is one that the broker refuses (a full queue with
// overflow=reject-publish), one for whose sake it closes the channel (no such exchange, too large), and one that AMQP cannot carry. A broker
// that is away, or short of memory, blames no message. Only a quorum queue on several nodes keeps what it has confirmed when one of
// them is lost; the Publisher cannot know what kind of queue it is.
//
// Messages of one topic and key are in a queue in their order, counted by the first time that each is there. RabbitMQ may refuse one
// message and take the next, so the relay hands on the next one of a key when the one before is confirmed. That costs one round trip for each
// message of the same key. Different keys do not wait for one another.
//
// # What a Consumer guarantees
//
// Every message that the queue delivers has its effect once, or is a dead letter with the reason, however often it is delivered and whatever
// dies meanwhile. It is acknowledged after the effect or the dead letter is committed: a batch by one frame, as far as nothing in it
// waits. A message without an id, and one whose id belongs to another payload, is a dead letter.
//
// A message whose attempt has failed is not given back to the queue: RabbitMQ would deliver it again at once, in front of all
// others, and count it. It stays unacknowledged in the Consumer until its next attempt is due. So no more than
// ConsumerConfig.Prefetch messages can wait at a time, and nothing else is handled while all of them do. After consumer_timeout, half
// an hour by default, RabbitMQ closes the channel of a consumer that has not acknowledged: the messages are delivered again then, which
// harms nothing. Pauses that are shorter, by [inbox.WithBackoff], avoid it.
//
// With ConsumerConfig.Ordered, the effects of one key have the order of the queue, also across processes that die: declare the
// queue with x-single-active-consumer, so that one process at a time reads it. Without Ordered there is no order, and as many processes as
// are wanted share the work.
//
// A quorum queue says how often it has delivered a message, and a message that kills its process is found out by that, and becomes a dead
// letter. A classic queue says only that it has, which is enough. But a limit of deliveries of the queue's own (x-delivery-limit,
// which is 20 by default from RabbitMQ 4 on) throws messages away, or into a dead letter exchange, that were merely in hand as often as
// their consumers lost the connection: raise it, or have a dead letter exchange that a person looks into. x-message-ttl and
// x-max-length throw away what is not handled yet. The retention of the inbox, [inbox.WithRetention], has to exceed the longest time
// for which a message may stay in the queue.
package idemamqp
