// Package outboxtest is a conformance suite for implementations of [outbox.Publisher]. It calls the
// Publisher directly, and also through a Relay.
//
//	func TestPublisherKeepsItsPromises(t *testing.T) {
//		outboxtest.Run(t, outboxtest.Suite{
//			Pool: func(t testing.TB) *pgxpool.Pool { … }, // a database of its own, with the schema
//			New: func(t testing.TB) outboxtest.Target {
//				queue := newQueue(t)
//				return outboxtest.Target{Publisher: mybroker.NewPublisher(…), Topic: queue.Name(), Arrived: queue.Read}
//			},
//		})
//	}
//
// The suite checks:
//
//   - A published message arrives once, under its ID, with the same key, type, payload and headers.
//     This includes empty, binary and large payloads. After a call, the Publisher does not use the
//     messages of the call any more.
//   - A message that is published again arrives unchanged.
//   - Concurrent calls do not affect each other.
//   - The messages of a key arrive in order through a Relay. This is so even if calls fail before
//     or after they have published, and if one message of the key can never be published. An
//     [outbox.OrderKeeper] publishes no message after a failed message of the same key.
//   - A [outbox.PublishError] names exactly the messages that cannot be published. All other
//     messages arrive, and later calls succeed.
//   - While the destination is unavailable, no attempt counts against a message. When the
//     destination is available again, the Publisher recovers by itself.
//   - Publish returns when its context ends.
//   - Unusual contents, such as keys with line breaks and headers with names that the broker uses,
//     arrive unchanged or are refused.
//
// The fields Away and Bad of a [Target] are optional. Without them the suite leaves out about half
// of its checks.
package outboxtest
