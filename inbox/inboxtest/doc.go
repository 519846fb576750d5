// Package inboxtest tests consumers that pass the messages of a broker to package [inbox]. It checks
// that each message has its effect once, whatever fails, and that no message is lost.
//
//	func TestConsumer_KeepsItsPromises(t *testing.T) {
//		inboxtest.Run(t, inboxtest.Suite{
//			Pool: func(t testing.TB) *pgxpool.Pool { … }, // a database of its own, with the schema
//			New: func(t testing.TB, pool *pgxpool.Pool) inboxtest.Source {
//				queue := newQueue(t)
//				return inboxtest.Source{
//					Name: "billing", Deliver: queue.Send, Left: queue.Len,
//					Run: func(ctx context.Context, handle inboxtest.Handle, options ...inbox.Option) error {
//						return mybroker.NewConsumer(pool, "billing", queue, handle, options...).Run(ctx)
//					},
//				}
//			},
//		})
//	}
//
// The suite checks these rules:
//
//   - A message has its effect once, however often it is delivered. The handler gets its ID, key, type,
//     headers and payload, also through [inbox.MessageOf].
//   - A consumer that is stopped ends. The next one handles the remaining messages, and no message
//     again.
//   - A message is acknowledged after the COMMIT of its effect: if the COMMIT fails, the message comes
//     again.
//   - A failed message is tried again. A message that always fails or panics is a dead letter with all
//     its fields after its last attempt, and the other messages have their effects.
//   - A running consumer handles redriven dead letters.
//   - The effects of a key are in the order of its messages, even if some fail, if Source.Ordered is
//     set.
//   - The broker keeps no message that is handled or dead-lettered.
package inboxtest
