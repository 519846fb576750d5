// Package inboxtest tests a consumer that hands the messages of a broker to package [inbox]: that each has its effect once, whatever
// happens, and that none is lost.
//
//	func TestConsumerKeepsItsPromises(t *testing.T) {
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
// What the suite asks:
//
//   - A message has its effect once, however often it is delivered, and the handler is given its ID, key, type, headers and payload,
//     also by [inbox.MessageOf].
//   - A consumer that is stopped in the middle ends, and the next one does what it has not done, and nothing again.
//   - A message is acknowledged after the COMMIT of its effect: one whose COMMIT fails comes again.
//   - A message that fails is tried again. One that always fails, or panics, is a dead letter after its last attempt, with all that it
//     has, and the others have their effects.
//   - A dead letter that is redriven is handled by the consumer that runs.
//   - The effects of a key have its order, if the Source says so, also while messages fail.
//   - What is handled, or is a dead letter, is not left in the broker.
package inboxtest
