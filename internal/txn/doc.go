// Package txn is the engine: whatever opens a transaction on a user's behalf goes through it.
//
//	tx, err := engine.Open(ctx, requests...)   // BEGIN and the requests: one round trip
//	undo, err := tx.Run(fn)                     // fn gets a guarded pgx.Tx; may be called several times
//	err = tx.Ask(ctx, requests...)              // a round trip in between
//	err = tx.Commit(ctx, requests...)           // the requests and COMMIT: one round trip
//	tx.Close()                                  // rolls back what is not committed
//
// What Commit returns is the truth: nil says that the transaction is committed; an *UnknownError, that the database alone
// knows; any other error, that it is not. A COMMIT that was sent is never cancelled.
//
// Join is the same inside a transaction of the caller's. Engine.Do is a whole transaction that records nothing.
package txn
