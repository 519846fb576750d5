// Package pgproxy is a proxy for the Postgres wire protocol. A test puts the proxy between a client
// and its server to count, delay, observe and break their traffic. The proxy speaks plaintext to
// the client. It decodes the messages to follow the protocol, and forwards every byte unchanged,
// unless [NewRewriting] or [Proxy.Replace] changes a message.
//
//	proxy, err := pgproxy.New(dsn)
//	...
//	defer proxy.Close()
//	pool, err := pgxpool.New(ctx, proxy.DSN())
//
// # Counting
//
// [Proxy.Tally] counts turns, which are the network round trips that a client waited for. [Tally]
// defines what counts as one turn.
//
// # Delaying
//
// [Proxy.SetLatency] delays every byte by the same time in each direction, so a round trip takes
// twice that time longer. The delay does not reduce bandwidth, because bytes in flight do not wait
// for each other.
//
// # Observing
//
// A statement passes two stages: [Seen] and [Answered]. [Proxy.Next] waits for the next statement
// to reach one of them. [Proxy.Observe] reports both stages of all statements. The proxy knows the
// SQL of statements in the simple protocol, of unnamed statements and of prepared statements. A
// simple Query with several statements is split into them. A statement that was prepared with the
// SQL command PREPARE is reported as the EXECUTE that runs it.
//
// # Breaking
//
// [Proxy.Arm] sets a trap at a [Point] of the traffic. An [Action] says what the trap does there:
//
//	lost := proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Reset)
//	err := tx.Commit(ctx) // commits, and fails
//	<-lost.Fired()
//
// The proxy forwards every byte in front of the point and no byte behind it. A trap therefore has
// the same effect in every run, whatever the timing and the TCP segmentation. When a trap breaks a
// connection, the proxy closes the server's side in order: the server first executes what it
// received, and then sees the end of the stream.
//
// [Conn.Cut], [Conn.Freeze] and [Proxy.Refuse] act at once, whatever the connection is doing.
package pgproxy
