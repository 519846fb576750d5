// Package operation makes work of several steps safe to retry, some of which call other systems:
// reserve, charge a card, confirm. It gives such work the contract of package idem: one key, one
// outcome, whatever crashes.
//
//	var Checkout = operation.Define("checkout", func(op *operation.Op, in Cart) (idem.Response, error) {
//		order, err := operation.Tx(op, "reserve", func(tx pgx.Tx) (Order, error) { … },
//			operation.UndoTx(func(tx pgx.Tx, order Order) error { … }))
//		if err != nil {
//			return idem.Response{}, err
//		}
//		charge, err := operation.Call(op, "charge", operation.Keyed(23*time.Hour),
//			func(ctx context.Context, key string) (Charge, error) { return bank.Charge(ctx, key, in.Total) },
//			operation.UndoCall(operation.Keyed(23*time.Hour),
//				func(ctx context.Context, key string, charge Charge) error { return bank.Refund(ctx, key, charge.ID) }))
//		if errors.Is(err, bank.ErrDeclined) { // which Charge returns as operation.Final
//			return idem.Response{}, idem.Reject(declined) // undoes what is done, and is final
//		}
//		…
//	})
//	res, err := Checkout.Do(ctx, pool, scope, key, hash, cart)
//
// The function is ordinary Go. After a crash it is run again from its top, and each recorded step
// returns what it returned, without being taken again.
//
// # Steps
//
// What a step returns is stored, a value or an error, and what is stored is what the function sees,
// in its first run as in every later one: a value as its codec decodes it, and an error as
// [WithErrors] says.
//
// [Tx] is a step in Postgres: its writes and its value are committed together. Neighboring Tx share
// a transaction. [Exec] is a Tx without a value. [Call] is a step elsewhere: it is made in no
// transaction and with no connection held, never before all that came earlier is committed, and
// always under the same key. Its [Policy] says what happens when its outcome is in doubt: [Keyed],
// [Asked] or [Once]. [Parallel] makes several calls at the same time, each a step of its own.
// [Sleep] and [Await] pause; [Signal] answers an Await. [Child] begins an operation of another
// definition, in the same commit, and awaits its answer. An [Undo] is an argument of the step that
// it undoes.
//
// # What is guaranteed
//
//   - An operation has one outcome, which every call with its key gets: that of idem.Do.
//   - A Tx step is committed once, together with its value, or not at all.
//   - A Call is made under one key, which is the same in every attempt and in every process. One
//     that is Once is made once.
//   - A Call is made when all that came before it is committed, which is durable also where
//     synchronous_commit is off, and what comes after it sees the value that it has returned.
//   - When an operation is rejected, ends in a Final error or is canceled, the undos of the steps
//     that are done run in reverse, each once, before the answer. What was not committed is rolled
//     back.
//   - What cannot go on safely parks, with a [Reason]: [ErrParked]. Nothing is guessed.
//
// A Call that is Keyed or Asked is made at least once, and has its effect once if the other side
// keeps its promise. If a process dies behind a call and before the next commit, the call is in
// doubt.
//
// # What holds the key
//
// With idem.Do a key in progress is an open transaction. An operation has none during its calls.
// From its first commit to its last its key is held by its record, in state running, which does not
// expire: every other call of the key waits, returns ErrInProgress, or resumes the operation if no
// process works on it. The row in idem.operations has an epoch. A process that takes over the
// operation begins another epoch in the same statement, and every commit names its epoch. A commit
// of an earlier epoch is refused as a whole: a process that was slow, or was taken for dead, has no
// effect.
//
// A process that works on operations holds one connection of its own, beside the pool, and on it an
// advisory lock on its number. If the process is killed the lock is gone within milliseconds, which
// others notice at once; if it vanishes, when the server's keepalive notices, after some 11
// seconds. Behind a pooler, which is recognized, there is a lease of 30 seconds instead. A process
// that others no longer see ends the contexts of its operations and comes back under a new number.
//
// # Who goes on
//
// A call with the same key goes on with an operation, and so does a [Worker]: run one in every
// process. No Worker is needed for what is promised here, only for operations whose caller never
// comes back, that were started by Start or Child, or that sleep. Another engine than a Worker,
// such as a job queue, asks [Due], and goes on by Resume. An operation that ten processes in a row
// have not survived, without a commit in between, parks, because it may be what kills them: see
// [WithMaxDeaths].
//
// # What is parked
//
// A parked operation waits for a person: [Show] says where and why, [Resolve] says the outcome of
// its call, [Retry] lets it go on, and [Cancel] has it undone; [PreviewCancel] says what Cancel
// would do. Until then its key is taken, and a call with it is [ErrParked]. The reason is a code
// and a sentence. The sentence names steps, and may quote the beginning of an error; where a Sealer
// is set, only the types of that error. The last error is stored in full, sealed as values are.
//
// A call whose attempts are exhausted parks, too, because it may have happened: any error that is
// neither [Final] nor [NotSent] may be an answer that was lost. A function that went on another way
// might pay twice. Only where the other side says that the call has not happened, and can no
// longer, which takes [Asked], does the function get the error, as a Final.
//
// # Changed code
//
// Steps are recognized by their position and their name. If the code asks for another step than the
// recorded one, or no longer for one, or cannot read its value, the operation parks with both names
// in the reason. [Op.Changed] lets new code go other ways than the operations that are in progress.
// [Replay] runs new code on the history of an operation.
//
// # Cost
//
// An operation of Tx steps is one transaction, exactly an idem.Do. Tx, Call, Tx is two commits, and
// no round trip more than two plain transactions around the call; each further Call is one commit
// more, and those of one [Parallel] cost as much as one. A second Tx in one transaction costs one
// round trip, for its savepoint. An undo costs nothing until it runs. A process holds one
// connection more while it works on operations that call out, and for some seconds after.
package operation
