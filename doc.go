// Package idem makes retried writes safe on Postgres.
//
// A client that gets no answer to a write does not know whether it happened. All it can do is to ask again, and if the first
// attempt did happen after all, there are two orders. The remedy is old: the client sends the same key with every attempt,
// and the server remembers what it answered. The difficulty is to remember exactly what was done. A record that is written
// before the effect, or after it, is wrong whenever something dies in between.
//
// This package writes the effect, the key and the response in one transaction, in one call:
//
//	res, err := idem.Do(ctx, pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
//		// the write, on tx
//		return idem.Response{Status: 201, Body: body}, nil
//	})
//
// # Usage
//
// Use [Do] around a write of your own, [DoJSON] if the answer is a value rather than a response, and [DoTx] inside a
// transaction that you already have, such as the one of a job.
//
// A call is told apart by its scope and key. The scope says who is calling and which operation: [Scope] joins such parts
// without ambiguity. The key is the caller's. The hash says what the request asks for, so that a key that is used for
// another request is refused rather than answered: [HashJSON] hashes what a JSON document says, whatever its spelling, and
// [HashBytes] hashes anything.
//
// The function may return an error, which rolls everything back and leaves the key free, or [Reject], which undoes its writes
// and makes the answer final all the same. It can ask [OperationID] for a name of this execution, to carry into events and
// other systems.
//
// The table comes from the migrations in package migrations.
//
// # What is guaranteed
//
// For one scope and key, while its record is retained:
//
//   - At most one execution of the function is ever committed.
//   - Every call that returns a [Result] without an error returns the response of that execution, byte for byte.
//   - The record exists if and only if the effect does. (A rejection is a record whose effect is to have none.)
//   - A call that returns an error has committed nothing, except where that error is [ErrOutcomeUnknown] or [ErrTxEnded].
//
// Less formally: there is one true execution, and whoever asks is shown that one. You will not see a response whose effect
// is missing, and you will not find an effect whose response is lost.
//
// This covers what the function writes through the tx that it is given, and whatever commits with it: rows, jobs, an outbox,
// notifications. It does not cover what the function does to other systems. Postgres cannot roll those back.
//
// # What it rests on
//
// The guarantee rests on the primary key of the table and on the atomicity of transactions. Everything else is a shortcut
// that saves work: the advisory lock by which a key in flight is recognised without blocking, and the memory in which calls
// of one process wait for each other. With a shortcut broken the answer may come later, never wrong.
//
// No lease is involved. A key in flight is a transaction that is open, so that no timeout has to be guessed:
//
//   - If the function fails, or panics, the key is free as soon as that is rolled back.
//   - If the process or the connection dies, the key is free as soon as the server notices.
//   - If the server dies, the key is free when it is back.
//
// # Lost acknowledgements
//
// If COMMIT was sent and its answer did not come, nobody but the database knows what happened. Do asks it: the record of the
// key says whether this very execution was committed. If it was, the call succeeds; if it was not, and no longer can be, the
// function is run again. The answer is ErrOutcomeUnknown only if Postgres cannot be asked within some seconds, if the COMMIT
// goes on for longer than that after the end of the context, as one that waits for a synchronous standby may, or if the TTL has
// passed meanwhile, so that the record may have come and gone. A COMMIT that was sent is never cancelled. Until the TTL has
// passed, asking again with the same key is always right.
//
// # Concurrency
//
// Calls with one key, on any number of processes:
//
//   - One executes. The others wait for it, up to [WithWait], and then replay its response.
//   - While a call waits it holds no connection, so that duplicates never take the pool away from others.
//   - In one process and pool, a single call asks the database on behalf of all that wait.
//   - If the one that executes fails, exactly one of the others takes over.
//   - A call that has waited in vain gets [ErrInProgress].
//
// Calls with different keys do not wait for each other, other than for what their functions lock.
//
// # What the function must not do
//
//   - It must not end the transaction: the methods that would are refused, and the call fails with ErrTxEnded. A COMMIT by
//     raw SQL is found out afterwards, and by then it has happened: see ErrTxEnded.
//   - It must not ignore an error of a statement: the transaction is aborted then, and the call fails with [ErrTxAborted].
//     A statement that is allowed to fail belongs under a savepoint, which tx.Begin begins.
//   - It must not keep the tx. Every method of it fails once the function has returned.
//   - It must not have effects that cannot be repeated, because it is run again after a serialization failure, a deadlock, or
//     a COMMIT that did not happen.
//   - It should not call Do on the same pool, which may run out of connections that way. DoTx is for that.
//
// The function is given no context of its own: it uses the one of its caller.
//
// # Responses at rest
//
// A response is stored as it is, for as long as its TTL, unless [WithSealer] encrypts it: package seal has the Sealer for that. A
// call that cannot open what is recorded gets [ErrUnreadable], and executes nothing.
//
// # Cost
//
// A first run makes as many round trips as a plain transaction around the same statements, because the claim travels with
// BEGIN and the response with COMMIT. A replay makes one, writes nothing and takes no transaction id. A connection that
// prepares statements, as pgx does by default, is taught five of them when it is first used, in one round trip.
//
// The statements of this package are sent below the query interface of pgx, so that its query tracers see those of the
// function but neither BEGIN and COMMIT nor the claim. Use [WithObserver] to see what becomes of calls,
// with [LogObserver] or package idemotel.
package idem
