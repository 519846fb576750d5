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
// Its ID is the header "id", as in Debezium's outbox event router. If a producer retries a request,
// Kafka stores the message once. If the relay publishes a message again, in another process or
// after a timeout, Kafka stores a second copy, and the inbox of the consumer recognizes the ID.
//
// The messages of one topic and key are in one partition. Their first copies are in order: the
// relay publishes a message only when the previous message of its key is confirmed, so each message
// takes a round trip. If partitions are added to a topic, keys move to other partitions, and their
// order is lost. If a message can never be stored, because of its size, its topic or its headers,
// the relay counts an attempt, and the later messages of its key wait. After an error of the
// cluster, such as too few replicas, no attempt counts, and the relay waits. If the cluster refuses
// to give the client a producer ID because the client lacks authorization, franz-go does not ask
// again: grant the right and restart the process.
//
// A confirmed message is on as many replicas as min.insync.replicas of its topic requires: set
// min.insync.replicas to 2 or more.
//
// # What a Consumer guarantees
//
// Each message of the topics has its effect once, or is a dead letter with the reason: see package
// inbox. This also holds if the offsets of the group are reset. The Consumer commits an offset
// after the COMMIT of the effect or the dead letter of each message before the offset. The effects
// of the messages of a key are in the order of the partition. While a message has to be tried
// again, only the later messages of its key wait. Messages of other keys are handled, up to
// ConsumerConfig.Window messages beyond the failed message.
//
// A rebalance waits for the current batch. If the batch takes longer than kgo.RebalanceTimeout, the
// group gives the partitions to another member, and both members may handle the same messages. Each
// message still has its effect once, in order.
//
// The retention of the inbox, [inbox.WithRetention], has to exceed the retention of the topics if
// their offsets may be reset. If producers use Kafka's transactions, set
// kgo.FetchIsolationLevel(kgo.ReadCommitted()).
package idemkafka
