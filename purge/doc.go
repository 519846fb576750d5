// Package purge deletes what idem keeps and is not needed any more: records, an hour after they have expired, operations of
// several steps, a week after they have ended, and the memory of messages, an hour after their retention is over. Dead letters stay.
//
//	go purge.Run(ctx, pool, purge.Options{})              // in every process: one works at a time
//	rep, err := purge.Once(ctx, pool, purge.Options{})    // by hand, or from a scheduler
//
// An expired key is new to the next call whether its record is still there or not, so a purge that is late costs room, and
// nothing else. What it promises:
//
//   - A record that is retained is never touched, nor one in state processing, whatever races: a claim that takes an expired
//     record over, a replay at the moment of expiry, another purge. Nor is an operation that goes on or is parked.
//   - No call waits for it longer than for one portion of some milliseconds. It never waits for a row that is locked.
//   - It can be killed at any moment. What was committed stays deleted, and the next run goes on where this one was.
//
// A sweep walks the table from its first block to its last, some blocks at a time, each portion a transaction of its
// own, and needs no index: one on expires_at would have to be written by every first run. A portion is as large as takes
// some 0.4 ms, and smaller after a timeout. After each, the sweep pauses in proportion to the time it took, so that it has a share
// of the server and gives way when that is busy. It waits while a standby lags behind, while more dead rows lie about than vacuum
// removes, and while the pool has no connection to spare; [Report] and the table idem.sweeps say so.
//
// Where the sweep is, and what it has found, is in idem.sweeps, so that any process goes on. One run sweeps at a time, by its
// row there: that works behind a pooler in transaction mode, where a lock of the session does not. If two did, each row would
// still be deleted once.
//
// The role needs USAGE on the schema idem; on what is swept, and on each partition of it, SELECT (ctid, state, expires_at), DELETE,
// and UPDATE of one column at least, because it locks rows before it deletes them; SELECT, INSERT and UPDATE on idem.sweeps; and
// pg_monitor to see how far behind standbys are. docs/operate.md has the statements, also for operations and messages.
package purge
