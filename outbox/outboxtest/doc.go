// Package outboxtest tests a Publisher: that it keeps what [outbox.Publisher] promises, by itself and in the hands of a Relay.
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
// What the suite asks:
//
//   - A message that is published arrives once, under its ID, with its key, type, payload and headers byte for byte: empty, binary and
//     large payloads as well. The Publisher keeps nothing of what it was given.
//   - A message that is published again is the same message.
//   - Calls side by side do not disturb each other.
//   - The messages of a key arrive in order, through a Relay, while calls fail before and after they have published, and while one message
//     of the key cannot be published at all. An [outbox.OrderKeeper] publishes nothing behind a message of the key that has failed.
//   - A [outbox.PublishError] names the messages that cannot be published and no other. The others arrive, and the Publisher goes on.
//   - A destination that is away blames no message, and when it is back the Publisher goes on by itself.
//   - Publish returns when its context ends.
//   - What is strange, such as keys with line breaks and headers with names of the broker's own, arrives as it is or is refused.
//
// The Away and Bad of a [Target] are optional, and without them the suite cannot ask the half of it.
package outboxtest
