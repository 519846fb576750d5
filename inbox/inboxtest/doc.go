// Package inboxtest tests consumers that pass the messages of a broker to package [inbox]. It
// checks that each message has its effect once, whatever fails, and that no message is lost.
//
//	func TestConsumer_KeepsItsPromises(t *testing.T) {
//		newSource := func(t testing.TB, pool *pgxpool.Pool) inboxtest.Source {
//			queue := newQueue(t)
//			run := func(ctx context.Context, handle inboxtest.Handle, o ...inbox.Option) error {
//				return mybroker.NewConsumer(pool, "billing", queue, handle, o...).Run(ctx)
//			}
//			return inboxtest.Source{
//				Name: "billing", Deliver: queue.Send, Run: run, Left: queue.Len,
//			}
//		}
//		// newPool returns a pool on a database of its own, with the schema.
//		inboxtest.Run(t, inboxtest.Suite{Pool: newPool, New: newSource})
//	}
//
// The suite checks these rules:
//
//   - A message has its effect once, however often it is delivered. The handler gets its ID, key,
//     type, headers and payload, also through [inbox.MessageOf].
//   - A consumer that is stopped ends. The next one handles the remaining messages, and no message
//     again.
//   - A message is acknowledged after the COMMIT of its effect: if the COMMIT fails, the message
//     comes again.
//   - A failed message is tried again. A message that always fails or panics is a dead letter with
//     all its fields after its last attempt, and the other messages have their effects.
//   - A running consumer handles redriven dead letters.
//   - The effects of a key are in the order of its messages, even if some fail, if Source.Ordered
//     is set.
//   - The broker keeps no message that is handled or dead-lettered.
package inboxtest
