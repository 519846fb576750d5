// Package idemwatermill publishes the messages of an outbox to any broker that Watermill supports,
// and handles the messages of Watermill with an inbox.
//
//	p := idemwatermill.NewPublisher(publisher, idemwatermill.PublisherConfig{})
//	relay := outbox.NewRelay(pool, p, outbox.RelayConfig{})
//
//	h := idemwatermill.Handler(pool, "billing", handle, idemwatermill.HandlerConfig{})
//	router.AddConsumerHandler("billing", "orders", subscriber, h)
//
// # What a Publisher guarantees
//
// If a transaction commits, its message is passed to Watermill's publisher until the publisher
// returns nil, and never otherwise. In each attempt, the UUID is the ID of the message, and the
// metadata idem-key and idem-type are its key and its type. Messages are published one by one. The
// relay publishes the next message of a topic and key when the previous one is published. If
// Watermill's publisher returns nil before the broker has the message, the message may be lost. If
// Watermill's publisher reorders a topic, the messages of a key lose their order.
//
// An error of Watermill's publisher does not say whether its cause is the message or the broker. So
// the Publisher looks at the whole call. If the broker accepts a later message, an attempt of the
// failed message counts. If the call ends with one or two errors, these attempts count too, unless
// every message of the call has failed. If the call ends with three or more errors, or spends ten
// seconds on errors without a success, the broker counts as unavailable, and no attempt counts. If
// the broker refuses every message of a topic and there are no messages of other topics, the relay
// waits as in an outage. To prevent that, PublisherConfig.Blames reports which errors concern only
// their message.
//
// # What a Handler guarantees
//
// Each message that the subscriber delivers has its effect once, or is a dead letter with the
// reason: see package inbox. The router acknowledges a message after the COMMIT of its effect or
// its dead letter. The subscriber has to redeliver messages that are not acknowledged. The
// retention of the inbox, [inbox.WithRetention], has to exceed the longest time after which the
// subscriber may redeliver a message.
//
// Each message has a transaction of its own, because Watermill delivers one message at a time. For
// batches, use the adapter of the broker, such as package idemkafka. After a failed attempt, the
// handler waits until the next attempt is due, and then refuses the message, so that the subscriber
// redelivers it. Most subscribers deliver no other message meanwhile. If a handler takes longer
// than the deadline of the broker, the broker also delivers the message to another process, which
// does no harm.
//
// If a service that the handler needs is unavailable, each attempt counts against the message that
// the subscriber has delivered. The message becomes a dead letter after as many attempts as
// inbox.WithMaxAttempts allows, and then the subscriber delivers the next message. Allow enough
// attempts for the longest outage.
//
// Effects are in the order in which the subscriber delivers. A Redis consumer group has no order:
// it delivers the messages of a dead process again after MaxIdleTime, behind later messages.
// Watermill does not report how often it has delivered a message. So a message that kills its
// process does not become a dead letter, unless HandlerConfig.Message sets Deliveries.
//
// A Handler is not a middleware of Watermill, because the function that makes the effect needs the
// transaction. To publish messages, that function calls [outbox.Add].
package idemwatermill
