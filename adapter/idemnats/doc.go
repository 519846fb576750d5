// Package idemnats publishes the messages of an outbox to NATS JetStream, and handles the messages
// of JetStream with an inbox.
//
// # What a Publisher guarantees
//
// A message is stored in its stream at least once if its transaction commits, and never otherwise.
// Its ID is the header Nats-Msg-Id in each attempt. Within the duplicate window of the stream (two
// minutes by default), a second attempt is not stored. After that, the inbox of the consumer
// recognizes the ID.
//
// The messages of one topic and key are first stored in their order, with one round trip for each.
// A message that can never be stored, because of its size, its subject or its headers, counts an
// attempt and blocks its key. A full stream counts no attempt: the relay waits until the stream has
// room. So do the messages of other streams of the Publisher, unless outbox.Route gives each stream
// a Publisher. A stream that discards old messages when it is full loses them.
//
// By default, JetStream may lose confirmed messages: a server confirms a message at once, and
// flushes its files every two minutes. With one replica, a power failure loses up to that much.
// With several, a power failure of several servers does, or of one server while another is slow:
// see Jepsen's analysis of NATS 2.12.1 (https://jepsen.io/analyses/nats-2.12.1). Set sync_interval:
// always in the configuration of each server. A client cannot see the setting, so this package does
// not check it.
//
// # What a Consumer guarantees
//
// Each message of the stream has its effect once, or is a dead letter with the reason: see package
// inbox. It is acknowledged after the COMMIT of the effect or the dead letter. While a batch is
// handled or a message waits, the Consumer extends the deadline each third of AckWait. MaxDeliver
// would drop messages without a trace, so NewConsumer refuses a JetStream consumer that has one.
//
// With ConsumerConfig.Ordered, the effects of a key are in the order in which its messages were
// first stored, also after a process died. Then no new message is handled until JetStream has
// redelivered the messages of that process, after AckWait. A short AckWait, such as 5 s, keeps that
// short. A Consumer that stops returns its messages at once. Without Ordered, there is no order,
// and any number of processes share the work.
//
// The limits of a stream (MaxAge, MaxMsgs, MaxBytes) drop messages that are not handled yet. The
// retention of the inbox, [inbox.WithRetention], has to exceed the longest time after which a
// message may be delivered again. A dead letter is terminated in the stream, and redriven from the
// inbox.
package idemnats
