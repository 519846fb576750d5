// Package idemmcp makes the tools of an MCP server safe to call again, using [idem.Do].
//
// A client that loses the connection during a tools/call must send the call again, with a new
// request id. The request id therefore cannot be the key. Instead, the client sends a key in _meta
// or in an HTTP header, an argument of the tool is the key, or the server derives a key from the
// arguments: see [Source].
//
// The middleware runs the handler of the tool in a transaction, and records the result under the
// key in the same transaction. A later call with the same key and the same arguments gets the
// recorded result.
//
//	keyed, err := idemmcp.New(pool, idemmcp.Config{
//		Scope: scope,
//		Tools: map[string]idemmcp.Source{"book_flight": idemmcp.FromClient()},
//	})
//	server.AddReceivingMiddleware(keyed.Middleware)
//
// A handler must make all its writes on [Tx]. It may run more than once for a call, for example
// after a serialization failure. All writes of the earlier runs are then rolled back.
//
// # Results
//
//   - A result without isError is recorded, and committed together with the writes of the handler.
//   - After a result with isError, the writes are rolled back and the result is not recorded: the
//     model may try again under the same key. [Config.RecordError] selects results that are
//     recorded all the same, so that later calls with the key get them.
//   - After a result that asks for input, the writes are rolled back and the result is not
//     recorded. The next call, which brings the input, has the same key.
//   - After a protocol error or a panic of the handler, the writes are rolled back and nothing is
//     recorded.
//
// The middleware's own refusals are protocol errors whose data is a [Refusal]. [Client] sends a
// call again under its key until the server has executed the call or refused it for good.
package idemmcp
