// Package idemkafka publishes the messages of an outbox to Kafka, and handles the messages of Kafka
// with an inbox. It uses franz-go.
//
// The package is tested with kfake, the broker of franz-go, which implements Kafka's protocol and
// injects faults. It was never tested with a real cluster. The tests without faults also run on the
// brokers in IDEM_TEST_KAFKA_BROKERS.
//
// # What a Publisher guarantees
//
// A message is stored in its topic at least once if its transaction commits, and never otherwise.
// Its ID is the header "id", as in Debezium's outbox event router. Kafka recognizes the retries of
// one producer and stores them once. A message that is published again, by another process or after
// a timeout, is stored again, and the inbox of the consumer recognizes its ID.
//
// The messages of one topic and key are in one partition. Their first copies are in order: the
// relay publishes a message of the key only when the one before is confirmed, so each takes a round
// trip. If partitions are added to a topic, keys move to other partitions, and their order is lost.
// A message that can never be stored, because of its size, its topic or its headers, counts an
// attempt and blocks its key. An error of the cluster, such as too few replicas, counts no attempt;
// the relay waits. If the cluster refuses a producer ID for lack of authorization, franz-go does
// not ask again: grant the right and restart the process.
//
// A confirmed message is as safe as min.insync.replicas of its topic: set it to 2 or more.
//
// # What a Consumer guarantees
//
// Each message of the topics has its effect once, or is a dead letter with the reason: see package
// inbox. This also holds if the offsets of the group are reset. An offset is committed after the
// COMMIT of all effects and dead letters before it. The effects of a key are in the order of its
// partition. A message that has to be tried again blocks only its own key. The messages of other
// keys are handled up to ConsumerConfig.Window beyond it.
//
// A rebalance waits for the current batch. If the batch takes longer than kgo.RebalanceTimeout, the
// group continues without this member, and both members may handle the same messages. Each message
// still has its effect once, in order.
//
// The retention of the inbox, [inbox.WithRetention], has to exceed the retention of the topics if
// their offsets may be reset. If producers use Kafka's transactions, set
// kgo.FetchIsolationLevel(kgo.ReadCommitted()).
package idemkafka
