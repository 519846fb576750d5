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
// The messages of one topic and key are first stored in their order. The relay publishes the next
// one when the stream has confirmed the previous one, which costs a round trip for each message of
// a key. Keys do not wait for each other. A message that can never be stored, because of its size,
// its subject or its headers, counts an attempt and blocks its key. A full stream counts no
// attempt: the relay waits until the stream has room. A stream that discards old messages when it
// is full loses them.
//
// JetStream may lose confirmed messages. A file store with one replica that is flushed every two
// minutes (sync_interval) loses up to that much in a power failure. Three replicas, or
// sync_interval: always, prevent that.
//
// # What a Consumer guarantees
//
// Each message of the stream has its effect once, or is a dead letter with the reason, however
// often it is delivered and whatever process dies. It is acknowledged after the COMMIT of the
// effect or the dead letter. While a batch is handled or a message waits, the Consumer extends the
// deadline each third of AckWait. The inbox counts attempts. MaxDeliver would drop messages without
// a trace, so NewConsumer refuses a JetStream consumer that has one. A message without an ID, or
// whose ID belongs to another payload, is a dead letter.
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
