// Package idemmcp makes the tools of an MCP server safe to call again, using [idem.Do].
//
// A client that loses the stream of a tools/call must send the call again, under a new request id.
// The request id therefore cannot be the key. The client sends a key in _meta, an argument of the
// tool is the key, or the server derives a key from the arguments: see [Source].
//
// The middleware runs the tool's handler in a transaction and records its result under the key, in
// the same transaction. A later call with the same key and the same arguments gets the recorded
// result.
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
//   - A result without isError is committed and recorded.
//   - A result with isError is rolled back and not recorded: the model may try again under the same
//     key. [Config.RecordError] records chosen errors, so that a repetition gets them again.
//   - A result that asks for input is rolled back and not recorded. The call that brings the input
//     has the same key.
//   - After a protocol error or a panic everything is rolled back, and nothing is recorded.
//
// The middleware's own refusals are protocol errors whose data is a [Refusal]. [Client] sends a
// call again under its key until there is an answer.
package idemmcp
