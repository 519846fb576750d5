// Package idemnats publishes the messages of an outbox to NATS JetStream, and handles the messages
// of JetStream with an inbox.
//
// # What a Publisher guarantees
//
// A message is stored in its stream at least once if its transaction commits, and never otherwise.
// Each attempt to publish the message sends its ID in the header Nats-Msg-Id. Within the duplicate
// window of the stream (two minutes by default), JetStream does not store the ID again. After the
// window JetStream may store a second copy, and the inbox of the consumer recognizes the ID.
//
// The first copies of the messages of one topic and key are stored in their order. Each message
// takes a round trip, because the relay waits for its confirmation before it publishes the next
// message of the key. If a message can never be stored, because of its size, its subject or its
// headers, the relay counts an attempt, and the later messages of its key wait. If a stream is
// full, no attempt counts, and the relay waits until the stream has room. The messages for the
// other streams of the Publisher wait too, unless outbox.Route gives each stream a Publisher. A
// full stream with the policy DiscardOld drops its oldest messages, even if they are not handled
// yet.
//
// By default, JetStream may lose confirmed messages: a server confirms a message at once, and
// flushes its files every two minutes. With one replica, a power failure may lose the messages of
// two minutes. With several replicas, messages may be lost if several servers lose power, or if one
// server does while another is slow: see Jepsen's analysis of NATS 2.12.1
// (https://jepsen.io/analyses/nats-2.12.1). Set sync_interval: always in the configuration of each
// server. A client cannot see the setting, so this package does not check it.
//
// # What a Consumer guarantees
//
// Each message of the stream has its effect once, or is a dead letter with the reason: see package
// inbox. The Consumer acknowledges a message after the COMMIT of its effect or its dead letter.
// Until then the Consumer extends the deadline for the acknowledgement, every third of AckWait.
// MaxDeliver would drop messages without a trace, so NewConsumer refuses a JetStream consumer with
// a MaxDeliver.
//
// With ConsumerConfig.Ordered, the effects of the messages of a key are in the order in which the
// stream first stored the messages. This also holds if a process dies: no later message is handled
// until JetStream has redelivered the messages of the dead process, after AckWait. A short AckWait,
// such as 5 s, shortens this pause. A Consumer that is stopped returns its messages at once.
// Without Ordered, there is no order, and any number of processes share the work.
//
// The limits of a stream (MaxAge, MaxMsgs, MaxBytes) drop messages that are not handled yet. The
// retention of the inbox, [inbox.WithRetention], has to exceed the longest time after which a
// message may be delivered again. The Consumer terminates the delivery of a dead letter, so that
// JetStream does not deliver the message again. A dead letter is redriven from the inbox.
package idemnats
