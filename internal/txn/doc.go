// Package txn is the transaction engine. All transactions that the library begins use this package.
//
//	tx, err := engine.Open(ctx, requests...)   // BEGIN and the requests: one round trip
//	undo, err := tx.Run(name, fn)              // fn gets a guarded pgx.Tx; may be repeated
//	err = tx.Ask(ctx, requests...)             // a round trip in between
//	err = tx.Commit(ctx, requests...)          // the requests and COMMIT: one round trip
//	tx.Close()                                 // rolls back what is not committed
//
// The result of Commit can be trusted. If it is nil, the transaction is committed. If it is an
// *UnknownError, only the database knows the outcome. If it is any other error, the transaction is
// not committed. A COMMIT that was sent is never canceled.
//
// Join returns a Joined, which does the same inside a transaction of the caller. Engine.Do runs a
// whole transaction in one call.
package txn
