// Package outboxtest is a conformance suite for implementations of [outbox.Publisher]. It calls the
// Publisher itself, and through a Relay.
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
//     This includes empty, binary and large payloads. The Publisher keeps no reference to the
//     messages of a call.
//   - A message that is published again is unchanged.
//   - Concurrent calls do not affect each other.
//   - The messages of a key arrive in order through a Relay. Meanwhile calls fail before and after
//     they have published, and one message of the key can never be published. An
//     [outbox.OrderKeeper] publishes no message after a failed one of the same key.
//   - A [outbox.PublishError] names the messages that cannot be published and no other. The others
//     arrive, and later calls succeed.
//   - An unavailable destination counts no attempt. The Publisher recovers without help when it is
//     available again.
//   - Publish returns when its context ends.
//   - Unusual contents, such as keys with line breaks and headers with names that the broker uses,
//     arrive unchanged or are refused.
//
// Away and Bad of a [Target] are optional. Without them the suite leaves out about half of its
// checks.
package outboxtest
