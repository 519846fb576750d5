// Package idemkafka takes messages out of an outbox to Kafka, and from Kafka into an inbox, with franz-go.
//
// It is tested with kfake, franz-go's own broker, which speaks Kafka's protocol and can be told to fail; no test of the project has seen a
// real cluster. The tests that inject no faults into a broker also run against one that IDEM_TEST_KAFKA_BROKERS names.
//
// # What a Publisher guarantees
//
// Every message whose transaction has committed is in its topic at least once, and none whose transaction has not. Its id is the
// header "id", where Debezium's outbox event router has it as well. Kafka knows the retries of one producer and stores none
// of them twice; a message that is published again, by another process or after a timeout, it does store again, and the inbox of the
// consumer knows it. Messages of one topic and key are in one partition and in their order, counted by the first time that each
// is stored: the relay hands on the next one when all replicas in sync have the one before, which costs one round trip for each
// message of the same key. Different keys do not wait for one another. Partitions that are added to a topic move keys, and then nothing
// keeps their order. Only a message that can never be stored, because of its size, its topic or its headers, is blamed, and holds back its
// key. What is about the cluster, such as too few replicas, blames no message and stops the relay.
// A client of franz-go that was refused a producer id, for want of a right, does not ask again: start the process again when it has the right.
//
// What Kafka has confirmed is as safe as the topic's min.insync.replicas says: set it to 2 at least.
//
// # What a Consumer guarantees
//
// Every message of the topics has its effect once, or is a dead letter with the reason, however often it is delivered, whatever
// dies meanwhile, and also if the offsets of the group are reset. An offset is committed when everything before it is
// handled, or a dead letter, and that is committed. Messages of one key have their effects in the order of their partition: one
// that is to be tried again holds back its key alone, within ConsumerConfig.Window. A message without an id, and one
// whose id belongs to another payload, is a dead letter.
//
// A rebalance waits for the batch in hand. If a batch takes longer than kgo.RebalanceTimeout, the group goes on without
// its member, and both may handle the same messages: each still has its effect once, in order.
//
// The retention of the inbox, [inbox.WithRetention], has to exceed that of the topics if their offsets may be reset. Producers
// that use Kafka's own transactions need kgo.FetchIsolationLevel(kgo.ReadCommitted()).
package idemkafka
