// Package inboxtest tests consumers that pass the messages of a broker to package [inbox]. It
// checks that each message has its effect once in spite of failures, and that no message is lost.
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
//   - A message has its effect once, however often it is delivered. The handler receives its ID,
//     key, type, headers and payload. [inbox.MessageOf] returns the message too.
//   - A consumer that is stopped returns. The next consumer handles the remaining messages, and
//     handles no message again.
//   - A message is acknowledged only after the COMMIT of its effect. If the COMMIT fails, the
//     message is delivered again.
//   - A failed message is tried again. If a message always fails or panics, it becomes a dead
//     letter with all its fields after its last attempt, and the other messages have their effects.
//   - A running consumer handles redriven dead letters.
//   - If Source.Ordered is set, the effects of a key are in the order of its messages, even if some
//     messages fail.
//   - A message that is handled or dead-lettered does not remain in the broker.
package inboxtest
