// Package purge deletes rows that idem no longer needs: records and inbox entries an hour after
// they have expired, operations a week after they have ended, published messages when their
// retention ends, and audit entries after a year. Dead letters stay.
//
//	go purge.Run(ctx, pool, purge.Options{})              // in every process: one works at a time
//	rep, err := purge.Once(ctx, pool, purge.Options{})    // by hand, or from a scheduler
//
// An expired key counts as new, whether or not its record has been deleted. So a late purge costs
// only disk space. Package purge guarantees:
//
//   - It never deletes a record that is retained or in state processing, nor an operation that is
//     running or parked. This is true even if other processes at the same time take over an expired
//     record, replay an answer at the moment of expiry, or purge.
//   - No call waits for the purge longer than one portion takes, which is some milliseconds. The
//     purge never waits for a row lock.
//   - The process can be killed at any moment. What was committed stays deleted, and the next run
//     resumes the sweep.
//
// A sweep walks a table from its first block to its last. It handles a portion of a few blocks in
// each transaction. It needs no index on expires_at, to which every first run would have to write.
// A portion has as many blocks as the server can handle in about 0.4 ms, and fewer after a timeout.
// After each portion the sweep pauses in proportion to the time that the portion took. So the sweep
// uses a fixed share of the server's time, and deletes less when the server is busy. It waits while
// a standby lags behind, while too many dead rows wait for vacuum, and while the pool has no free
// connection. [Report] shows how long it has waited for what. The table idem.sweeps shows what a
// sweep is waiting for, except for the pool.
//
// The position and the counts of a sweep are stored in idem.sweeps, so that any process can resume
// it. Only one run sweeps a table at a time: the run whose id is in the row of the table in
// idem.sweeps. Unlike a session lock, this works behind a pooler in transaction mode. If two runs
// did sweep at once, each row would still be deleted once.
//
// The role needs USAGE on the schema idem. On each swept table and its partitions it needs SELECT
// (ctid, state, expires_at), DELETE, and UPDATE of at least one column, because it locks rows
// before it deletes them. It needs SELECT, INSERT and UPDATE on idem.sweeps, and pg_monitor to see
// the lag of standbys. docs/operate.md has the statements, also for operations and messages.
package purge
