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
// returns nil, and never otherwise. The UUID of the message is its ID in each attempt, and its
// metadata idem-key and idem-type are its key and its type. Messages are published one by one. The
// relay publishes the next message of a topic and key when the previous one is published.
// Watermill's publisher has to do the rest. If it returns before the broker has the message, the
// message may be lost. If it reorders a topic, the order of a key is lost.
//
// Watermill's errors do not name the message or the broker as their cause. An error counts an
// attempt of its message if the broker accepts a later message. If a call ends with one or two
// errors in a row, they count as well, unless every message of the call has failed. Three errors in
// a row with no later success, or ten seconds of errors, mean that the broker is unavailable, and
// count nothing. If the broker refuses every message of a topic and there are no other messages,
// the relay waits for it as for an outage. PublisherConfig.Blames prevents that: it reports which
// errors concern their message.
//
// # What a Handler guarantees
//
// Each message that the subscriber delivers has its effect once, or is a dead letter with the
// reason: see package inbox. It is acknowledged after the COMMIT of the effect or the dead letter.
// The subscriber has to redeliver messages that are not acknowledged. The retention of the inbox,
// [inbox.WithRetention], has to exceed the longest time after which the subscriber may redeliver a
// message.
//
// Each message has a transaction of its own, because Watermill delivers one at a time. For batches,
// use the package of the broker. After a failed attempt, the handler waits until the next one is
// due, and then refuses the message, so that it is redelivered. Most subscribers wait meanwhile,
// and all later messages with them. If a handler takes longer than the deadline of the broker, the
// message is also delivered elsewhere, which does no harm.
//
// If a service that the handler needs is unavailable, each attempt counts against the one message
// that the subscriber has delivered. It is a dead letter after inbox.WithMaxAttempts, and then the
// next one is tried. Set enough attempts for the longest outage.
//
// Effects are in the order in which the subscriber delivers. A Redis consumer group has no order:
// the messages of a process that died come after MaxIdleTime, behind later messages. Watermill does
// not report how often it has delivered a message. So a message that kills its process does not
// become a dead letter, unless HandlerConfig.Message sets Deliveries.
//
// The handler is no middleware, because its effect needs tx. It publishes messages with
// [outbox.Add].
package idemwatermill
