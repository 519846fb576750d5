// Package purge deletes what idem no longer needs: records, an hour after they have expired;
// operations, a week after they have ended; inbox entries, an hour after their retention has ended.
// Dead letters stay.
//
//	go purge.Run(ctx, pool, purge.Options{})              // in every process: one works at a time
//	rep, err := purge.Once(ctx, pool, purge.Options{})    // by hand, or from a scheduler
//
// An expired key is new to the next call, whether or not its record has been deleted. So a late
// purge costs only disk space. Package purge guarantees:
//
//   - It never deletes a record that is retained or in state processing, nor an operation that is
//     running or parked. This holds while other processes claim an expired record, replay an answer
//     at the moment of expiry, or purge.
//   - No call waits for the purge longer than one portion takes, which is some milliseconds. The
//     purge never waits for a row lock.
//   - The process can be killed at any moment. What was committed stays deleted, and the next run
//     resumes the sweep.
//
// A sweep walks a table from its first block to its last, a few blocks at a time. Each such portion
// is a transaction. It needs no index: every first run would have to write to an index on
// expires_at. A portion is as large as what takes about 0.4 ms, and smaller after a timeout. After
// each portion the sweep pauses in proportion to the time that the portion took. So it uses a fixed
// share of the server, and less when the server is busy. It waits while a standby lags behind,
// while there are too many dead rows for vacuum, and while the pool has no free connection.
// [Report] and the table idem.sweeps show that it waits.
//
// The position and the counts of a sweep are stored in idem.sweeps, so that any process can resume
// it. One run sweeps a table at a time. It holds the row of the table in idem.sweeps, which works
// behind a pooler in transaction mode, where session locks do not. If two runs did sweep at once,
// each row would still be deleted once.
//
// The role needs USAGE on the schema idem. On each swept table and its partitions it needs SELECT
// (ctid, state, expires_at), DELETE, and UPDATE of at least one column, because it locks rows
// before it deletes them. It needs SELECT, INSERT and UPDATE on idem.sweeps, and pg_monitor to see
// the lag of standbys. docs/operate.md has the statements, also for operations and messages.
package purge
