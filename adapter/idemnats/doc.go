// Package idemnats takes messages out of an outbox to NATS JetStream, and from JetStream into an inbox.
//
// # What a Publisher guarantees
//
// Every message whose transaction has committed is stored in its stream at least once, and none whose transaction has not.
// Its id is the header Nats-Msg-Id in each try: within the stream's duplicate window (two minutes, if it is not set) a
// second try is not stored again, after it the inbox of the consumer knows it. Messages of one topic and key are stored
// in their order, counted by the first time that each is stored: the relay hands on the next one when the stream has the one before, which costs
// one round trip for each message of the same key. Different keys do not wait for one another. Only a
// message that can never be stored, because of its size, its subject or its headers, is blamed, and holds back its key. A stream
// that is full blames no message: it stops the relay until there is room, unless it discards old messages, which loses them.
//
// What JetStream has confirmed and then loses is lost: a file store that is flushed every two minutes (sync_interval) loses that
// much when the power fails and there is one replica. Three replicas, or sync_interval: always, keep it.
//
// # What a Consumer guarantees
//
// Every message of the stream has its effect once, or is a dead letter with the reason, however often it is delivered and
// whatever dies meanwhile. It is acknowledged after the effect or the dead letter is committed. While a batch is
// handled, or a message waits, JetStream is told so each third of AckWait. The Consumer counts attempts in the inbox and not by MaxDeliver,
// which would drop messages without a trace: it refuses a JetStream consumer that has one. A message without an id, and
// one whose id belongs to another payload, is a dead letter.
//
// With ConsumerConfig.Ordered, the effects of one key have the order in which its messages were stored first, also across processes
// that die. After a death nothing new is handled until JetStream has delivered again what that process had in hand, after AckWait:
// a short AckWait, such as 5 s, keeps that short. A Consumer that stops gives back what it has in hand at once. Without
// Ordered there is no order, and as many processes as are wanted share the work.
//
// Limits of a stream (MaxAge, MaxMsgs, MaxBytes) drop what is not handled yet, and the retention of the inbox,
// [inbox.WithRetention], has to exceed the longest time after which a message may be delivered again. A dead
// letter is terminated: it is redriven from the inbox, not from the stream.
package idemnats
