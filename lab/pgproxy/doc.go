// Package pgproxy is a proxy for the Postgres wire protocol that a test puts between a client and its server to count,
// delay, observe and break their conversation. It speaks plaintext to both sides and never alters a byte: messages are
// read to be understood, and forwarded as they came.
//
//	proxy, err := pgproxy.New(dsn)
//	...
//	defer proxy.Close()
//	pool, err := pgxpool.New(ctx, proxy.DSN())
//
// # Counting
//
// [Proxy.Tally] and [Conn.Tally] count turns: how often a client had to wait for the server. See [Tally] for what is
// one turn and what is not.
//
// # Delaying
//
// [Proxy.SetLatency] holds every byte back for some time in each direction, half a round trip each. Bytes under way do
// not wait for each other, so bandwidth is not reduced.
//
// # Observing
//
// A statement passes four stages: [Seen], [Forwarded], [Answered], [Delivered]. [Proxy.Next] waits for the next
// statement to reach one of them, [Proxy.Observe] reports all. SQL is known for statements of the simple protocol
// (a string of several statements is taken apart), for unnamed and for prepared ones. A statement that has been
// prepared with the SQL command PREPARE is seen as the EXECUTE that runs it.
//
// # Breaking
//
// [Proxy.Arm] sets a trap at a [Point] of the conversation, and says by an [Action] what happens there:
//
//	lost := proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Reset)
//	err := tx.Commit(ctx) // commits, and fails
//	<-lost.Fired()
//
// What is in front of the point is forwarded in any case, what is behind it is not: the same trap does the same at every
// run, whatever the timing and however TCP cuts the stream. Where a connection is broken, the server's side is closed in
// an orderly way: the server executes what it was sent, and only then sees that its client is gone.
//
// [Conn.Cut], [Conn.Freeze] and [Proxy.Refuse] break things at once, wherever the conversation is.
package pgproxy
