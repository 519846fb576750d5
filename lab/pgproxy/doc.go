// Package pgproxy is a proxy for the Postgres wire protocol. A test puts the proxy between a client
// and its server to count, delay, observe and break their traffic. The proxy speaks plaintext to
// the client. It decodes messages to follow the protocol, but forwards every byte unchanged. Only
// [NewRewriting] and [Proxy.Replace] change messages.
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
// [Proxy.SetLatency] delays every byte in each direction by the same time. A round trip therefore
// takes longer by twice that time. The delay does not reduce bandwidth, because bytes in flight do
// not wait for each other.
//
// # Observing
//
// A statement passes two stages: [Seen] and [Answered]. [Proxy.Next] waits until the next statement
// reaches one of these stages. [Proxy.Observe] reports both stages of all statements. The proxy
// knows the SQL of statements in the simple protocol, of unnamed statements and of prepared
// statements. It splits a simple Query with several statements. A statement that was prepared with
// the SQL command PREPARE is reported as the EXECUTE that runs it.
//
// # Breaking
//
// [Proxy.Arm] sets a trap at a [Point] of the traffic. An [Action] says what the trap does at the
// point:
//
//	lost := proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Reset)
//	err := tx.Commit(ctx) // commits, and fails
//	<-lost.Fired()
//
// The proxy forwards every byte before the point and no byte after it. A trap therefore has the
// same effect in every run, whatever the timing and the TCP segmentation. When a trap breaks a
// connection, the server first executes what it has received, and then sees the end of the stream.
//
// [Conn.Cut], [Conn.Freeze] and [Proxy.Refuse] act at once, whatever the connection is doing.
package pgproxy
