// Package idemwatermill takes messages out of an outbox to any broker that Watermill knows, and from there into an inbox.
//
//	relay := outbox.NewRelay(pool, idemwatermill.NewPublisher(publisher, idemwatermill.PublisherConfig{}), outbox.RelayConfig{})
//
//	router.AddConsumerHandler("billing", "orders", subscriber, idemwatermill.Handler(pool, "billing", handle, idemwatermill.HandlerConfig{}))
//
// # What a Publisher guarantees
//
// Every message whose transaction has committed is handed to Watermill's publisher until that has returned nil for it, and none whose
// transaction has not. Its id is the UUID in each try, its key and its type are the metadata idem-key and idem-type. Messages go one by one,
// and the relay hands on the next one of a topic and key when the one before is published. That they are kept, and arrive in this order, is up to
// Watermill's publisher: one that returns before the broker has the message loses what it has in memory, and one per topic has to keep
// the order of a key.
//
// Watermill's errors do not say whether a message or the broker is to blame. A message is blamed if the broker takes another one after it;
// at the end of a call, up to two in a row are, if any was published. Three errors in a row with nothing published after them, or ten seconds
// of errors, say that the broker is away, which blames no message. Where every message of a topic is refused and there are no others, that
// holds up the relay: PublisherConfig.Blames tells it which errors are a message's own.
//
// # What a Handler guarantees
//
// Every message that the subscriber delivers has its effect once, or is a dead letter with the reason, however often it is delivered and
// whatever dies meanwhile. It is acknowledged after the effect or the dead letter is committed. A message without a UUID, and one whose
// UUID belongs to another payload, is a dead letter. That a message which is not acknowledged is delivered again is up to the subscriber, and
// the retention of the inbox, [inbox.WithRetention], has to exceed the longest time after which it may be.
//
// Each message has a transaction of its own, as Watermill delivers one at a time: for batches, use the package of the broker. A message
// whose attempt has failed is held until the next one is due, and then refused, so that it is delivered again: with a subscriber that
// waits for that, as most do, everything behind it waits as well. What takes longer than the broker's patience is delivered elsewhere
// meanwhile, which harms nothing.
//
// While what the handler needs is away, the one message that the subscriber has delivered is the one that is tried, and counted:
// after inbox.WithMaxAttempts it is a dead letter, and then the next one is. Choose as many as the longest outage takes.
//
// Effects have the order in which the subscriber delivers. In a consumer group of Redis that is none: what a process had in hand that is gone
// comes after MaxIdleTime, behind what was published later. Watermill does not say how often it has delivered a message, so one that
// kills its process is not found out, unless HandlerConfig.Message sets Deliveries.
//
// The handler is not a middleware, because its effect needs tx. What it has to publish, it gives to [outbox.Add].
package idemwatermill
