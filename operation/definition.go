// Package operation makes work of several steps safe to retry, some of which call other systems:
// reserve, charge a card, confirm. It gives such work the contract of package idem: one key, one
// outcome, whatever crashes.
//
//	var Checkout = operation.Define("checkout", checkout)
//
//	func checkout(op *operation.Op, in Cart) (idem.Response, error) {
//		order, err := operation.Tx(op, "reserve", func(tx pgx.Tx) (Order, error) { … },
//			operation.UndoTx(func(tx pgx.Tx, order Order) error { … }))
//		if err != nil {
//			return idem.Response{}, err
//		}
//		day := operation.Keyed(23 * time.Hour) // the bank recognizes a key for a day
//		charge, err := operation.Call(op, "charge", day,
//			func(ctx context.Context, key string) (Charge, error) {
//				return bank.Charge(ctx, key, in.Total)
//			},
//			operation.UndoCall(day, func(ctx context.Context, key string, charge Charge) error {
//				return bank.Refund(ctx, key, charge.ID)
//			}))
//		if errors.Is(err, bank.ErrDeclined) { // which Charge returns as operation.Final
//			return idem.Response{}, idem.Reject(declined) // undoes what is done, and is final
//		}
//		…
//	}
//
//	res, err := Checkout.Do(ctx, pool, scope, key, hash, cart)
//
// The function is ordinary Go. After a crash it runs again from its top. Each recorded step returns
// what it returned before, and is not taken again.
//
// # Steps
//
// The outcome of a step, a value or an error, is stored. The function sees the stored form, in its
// first run as in every later one: a value as its codec decodes it, and an error as [WithErrors]
// says.
//
//   - [Tx] is a step in Postgres: its writes and its value are committed together. Neighboring Tx
//     share a transaction. [Exec] is a Tx without a value.
//   - [Call] is a step in another system. It runs in no transaction and holds no connection, after
//     all earlier steps are committed, and always under the same key. Its [Policy] says what
//     happens when its outcome is in doubt: [Keyed], [Asked] or [Once].
//   - [Parallel] makes several calls at the same time, each a step of its own.
//   - [Sleep] pauses the operation. [Await] waits for a [Signal].
//   - [Child] begins an operation of another definition, in the same commit, and awaits its answer.
//
// An [Undo] is an argument of the step that it undoes.
//
// # What is guaranteed
//
//   - An operation has one outcome, which every call with its key gets, as with idem.Do.
//   - A Tx step is committed once, together with its value, or not at all.
//   - A Call has one key in every attempt and in every process. A Call that is Once is made once.
//   - A Call is made after all earlier steps are committed, durably even where synchronous_commit
//     is off. Later steps see the value that it has returned.
//   - When an operation is rejected, ends in a Final error or is canceled, the undos of the done
//     steps run in reverse, each once, before the answer. Uncommitted writes are rolled back.
//   - An operation that cannot continue safely parks, with a [Reason]: [ErrParked]. Nothing is
//     guessed.
//
// A Call that is Keyed or Asked is made at least once. Its effect happens once if the other side
// keeps its promise.
//
// A call with the same key resumes an operation that no process works on, and so does a [Worker]:
// run one in every process. A commit of a process that was taken for dead is refused.
//
// A parked operation waits for a person: see [Show], [Resolve], [Retry] and [Cancel]. Steps are
// recognized by their position and their name. [Op.Changed] lets new code follow another path, and
// [Replay] runs new code on the history of an operation. docs/operations-reference.md has the rules
// and the costs.
package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/bridge"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/storederror"
	"github.com/idem-go/idem/internal/txn"
)

// Option changes a Definition.
type Option func(*definition)

// WithCodec sets how inputs and values are stored. The default is JSON. It decodes a number into
// an interface as a json.Number, which keeps all its digits. Signals and errors are always JSON.
func WithCodec(codec Codec) Option {
	return func(d *definition) {
		if codec == nil {
			d.err = errors.New("operation: the codec is nil")
			return
		}
		d.codec = codec
	}
}

// WithDeadline limits how long each call of the operation is tried again. The time counts from the
// commit before the first attempt; where the operation changes processes, it counts by the
// database's clock. A call that has not succeeded by then ends as after its last attempt: see
// [Policy.WithMaxAttempts]. An undo has no deadline. There is no limit by default.
func WithDeadline(d time.Duration) Option {
	return func(def *definition) {
		def.limit, def.err = d, cmp.Or(positive("WithDeadline", d, "deadline"), def.err)
	}
}

// WithErrors names errors that the function of the operation gets as they were, so that their own
// Is, As and interfaces work: sentinel errors, each by its value, and types, each by an example.
//
//	operation.WithErrors(ErrInsufficientFunds, &DeclinedError{})
//
// The function sees the stored form of an error, in its first run as in every later one: its text,
// and the types, texts and exported fields of the error and of those that it wraps. An error that
// is not named loses its own Is and As, its interfaces, == and its unexported fields. Every
// definition knows the errors of this module and common errors of pgx, net, io and context.
//
// A named type must come back from JSON with the same text; otherwise it counts as not named. Keep
// an error named, and the text of a sentinel error unchanged, as long as operations in progress
// may have met it: they park if the program no longer knows the error.
func WithErrors(errs ...error) Option {
	return func(d *definition) {
		for _, err := range errs {
			if err == nil {
				d.err = fmt.Errorf("operation: WithErrors: an error is nil")
				return
			}
			if d.knownErrors.Confuses(err) {
				d.err = fmt.Errorf("operation: WithErrors: two errors %T %q cannot be told apart", err, storederror.Text(err))
				return
			}
			d.knownErrors = append(d.knownErrors, storederror.Name("", err))
		}
	}
}

// WithMaxDeaths sets after how many deaths an operation parks with ReasonTooManyDeaths. A death is
// a process that ended while it worked on the operation, without releasing it. A commit resets the
// count. Callers that leave, errors and panics do not count. The default is 10.
//
// A process begins operations with three or more deaths one at a time, or 10 seconds apart. So an
// operation whose process was killed by another operation is not parked. If n is below 4, such an
// operation may park as well.
func WithMaxDeaths(n int) Option {
	return func(d *definition) {
		d.maxDeaths, d.err = n, cmp.Or(positive("WithMaxDeaths", n, "number"), d.err)
	}
}

// WithConcurrency sets how many operations of this kind one Worker works on at a time. The default
// is the limit of WorkerConfig.Concurrency. Calls of Do and Resume are not limited.
func WithConcurrency(n int) Option {
	return func(d *definition) {
		d.concurrency, d.err = n, cmp.Or(positive("WithConcurrency", n, "number"), d.err)
	}
}

// Define returns a Definition: a name, and a function whose steps are recorded. The name is
// stored, and a program can resume an operation only if it has a definition of that name. All
// programs that use one database share its operations. Services that must not resume each other's
// operations begin the names with their own name, such as "billing/checkout".
//
// The function is ordinary Go, with branches and loops between its steps. Whenever the operation
// continues after a crash or a pause, it runs again from its top. Each recorded step returns what
// it returned before, and is not taken again. So the choice of the next step must depend on in and
// on steps, and not on a clock, a random number or the order of a map. Steps are taken one after
// the other, except for the calls of Parallel. Return an unexpected error of a step as it is, or
// wrapped.
//
// The result of the function ends the operation. A response is recorded and answers the key, as
// with idem.Do. After idem.Reject the operation is undone, and the rejection answers the key.
// After a Final error the operation is undone, too; the calls that have waited get the error, and
// the key is free. Any other error ends only this run. If nothing is committed yet, everything is
// rolled back and the key is free, as with idem.Do. Otherwise the operation continues later, from
// its record.
func Define[In any](name string, fn func(op *Op, in In) (idem.Response, error), opts ...Option) *Definition[In] {
	d := &Definition[In]{definition{name: name, codec: jsonCodec{}, knownErrors: defaultErrors, maxDeaths: maxDeaths, err: checkName(name)}}
	if fn == nil {
		d.err = errors.New("operation: the function is nil")
	}
	for _, opt := range opts {
		if opt == nil {
			d.err = errors.New("operation: nil Option")
			continue
		}
		opt(&d.definition)
	}
	d.run = func(op *Op, input []byte) (idem.Response, error) {
		in, err := decode[In](d.codec, input)
		if err != nil {
			return idem.Response{}, op.park("", ReasonValueUnreadable, "the recorded input does not decode into %T: the code has changed", in)
		}
		return fn(op, in)
	}
	return d
}

// Do executes the operation under the key, as idem.Do executes a fn. If the key is answered, Do
// returns that answer. For another hash it returns idem.ErrMismatch. If the key is in progress, Do
// waits up to idem.WithWait, and then returns idem.ErrInProgress. If the operation was begun and
// no process works on it any more, Do resumes it with the recorded input and ignores in. If the
// operation that Do has waited for ends in a Final error or is canceled, by any process, Do
// returns that error, and does not begin another operation.
//
// If ctx ends, Do releases the operation, between steps or by ending the Call in progress. Its
// error is then both idem.ErrInProgress and that of the context, unless nothing is committed yet.
// A later call with the same key, or a Worker, resumes the operation. An operation that sleeps, or
// waits for a signal, a child or another attempt, is in progress, too: Do waits for it, up to
// idem.WithWait, and resumes it when it is due, unless another process does.
//
// A Result means what it means with idem.Do. ErrParked says that a person must decide. After any
// other error, if something is committed already, only this call has ended: a call with the same
// key continues the operation.
func (d *Definition[In]) Do(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash idem.Hash, in In, opts ...idem.Option) (idem.Result, error) {
	input, err := d.input(in)
	if err != nil {
		return idem.Result{}, err
	}
	return idemCalls.Do(ctx, pool, scope, key, hash, d.options(opts), &caller{definition: &d.definition, input: input})
}

// Start makes the operation part of tx, and returns its id: the operation begins when tx is
// committed, and a Worker does the work. Start with the same key again returns the same id, even if
// the operation has ended. If another call is claiming the key, Start returns idem.ErrInProgress at
// once. If the key was answered in a single transaction, by idem.Do or by a Do that had only Tx
// steps, no operation has it: Start returns ErrUnknownOperation, and Do returns the answer.
func (d *Definition[In]) Start(ctx context.Context, tx pgx.Tx, scope, key string, hash idem.Hash, in In, opts ...idem.Option) (id string, err error) {
	input, err := d.input(in)
	if err != nil {
		return "", err
	}
	begun := false
	id, err = idemCalls.Start(ctx, tx, scope, key, hash, d.options(opts), func(e bridge.Execution, k *db.Key, claimedAt time.Time) ([]txn.Request, error) {
		begun = true
		sealed, err := seal(e.Sealer(), input, db.BoundInput(k.ExecutionID))
		return []txn.Request{
			&db.HoldKey{Key: k, Room: db.Held},
			&db.BeginOperation{Key: k, Name: d.name, RecordTTL: e.TTL(), ClaimedAt: claimedAt, Input: sealed, At: db.At{Kind: db.Started}},
		}, err
	})
	if err != nil || begun {
		return id, err
	}
	known, err := db.IsOperation(ctx, tx, id)
	if err == nil && !known {
		return "", fmt.Errorf("%w: the key was answered in a single transaction: Do returns the answer", ErrUnknownOperation)
	}
	return id, err
}

// options returns the options of a call. The definition names the call, unless opts has another
// name or no metric could carry the name of the definition.
func (d *Definition[In]) options(opts []idem.Option) []idem.Option {
	name := idem.WithName(d.name)
	if idem.CheckOptions(name) != nil {
		return opts
	}
	return append([]idem.Option{name}, opts...)
}

// caller is the Runner of one call of Do.
type caller struct {
	definition *definition
	input      []byte
	begun      *work // the work of Begin if its first COMMIT was not acknowledged
}

// Begin executes the operation from its beginning, in the transaction that has claimed the key.
func (c *caller) Begin(ctx context.Context, e bridge.Execution, tx *txn.Tx) bridge.Ending {
	w := &work{definition: c.definition, execution: e, key: e.Key(""), input: c.input, ttl: e.TTL(), createdAt: e.ClaimedAt(), journal: newJournal(nil)}
	w.operation = w.key.ExecutionID
	end := w.run(ctx, tx)
	if end.Outcome == bridge.Unknown {
		c.begun = w
	}
	return c.ended(ctx, w, end)
}

// Resume continues an operation that no process works on. After a Begin without acknowledgement it
// knows which calls of the operation were not sent.
func (c *caller) Resume(ctx context.Context, e bridge.Execution, operation string) bridge.Ending {
	w := &work{definition: c.definition, execution: e, operation: operation}
	if c.begun != nil && c.begun.operation == operation {
		w.epoch, w.unsent = c.begun.epoch, c.begun.unsent
	}
	t, end := w.claim(ctx, w.execution.Engine())
	if t != nil {
		end = w.runClaimed(ctx, t)
	}
	return c.ended(ctx, w, end)
}

// ended replaces the ending of a call whose key is free by the error in which the operation has
// ended, if another process has ended it.
func (c *caller) ended(ctx context.Context, w *work, end bridge.Ending) bridge.Ending {
	if end.Outcome == bridge.Undone {
		if ended, ok := w.endedIn(ctx, w.execution.Engine().Query); ok {
			return ended
		}
	}
	return end
}

// Ended returns the ending of a call that has waited for an operation, if that operation has ended
// without an answer.
func (c *caller) Ended(ctx context.Context, e bridge.Execution, operation string, ask func(context.Context, ...txn.Request) error) (bridge.Ending, bool) {
	return (&work{definition: c.definition, execution: e, operation: operation}).endedIn(ctx, ask)
}

// endedIn returns the ending of a call whose operation is undone. Its error is ErrCanceled if the
// operation was canceled. Otherwise it has the recorded error of the function as its cause. It
// returns false if the operation is not undone.
func (w *work) endedIn(ctx context.Context, ask func(context.Context, ...txn.Request) error) (bridge.Ending, bool) {
	show, steps := db.ShowOperation{OperationID: w.operation}, db.LoadSteps{OperationID: w.operation}
	if err := ask(ctx, &show, &steps); err != nil {
		return w.queryFailed(ctx, err), true
	}
	switch {
	case !show.Found || show.State != db.OperationUndone:
		return bridge.Ending{}, false
	case show.Canceled:
		return failedWith(ErrCanceled), true
	}
	cause := ErrUndone
	if s := newJournal(steps.Rows).end; s != nil {
		stored, err := open(w.execution.Sealer(), s.Value, db.BoundStep(w.operation, s))
		if err != nil {
			return failedWith(err), true
		}
		if ended, err := restore(w.definition.knownErrors, stored); err == nil { // else the code no longer names it
			cause = runError(ended)
		}
	}
	return failedWith(&endedError{cause: cause}), true
}

// Wait waits until the operation has ended, and returns its answer, which Do of its key would
// return too. It does not work on the operation: a Worker or callers of Do have to. Wait polls the
// database with a pause that grows to a second, and holds no connection in between. Of the
// options, idem.WithSealer matters.
//
// Wait returns the error of ctx if ctx ends first; ErrParked, at once, if the operation is parked;
// ErrUndone if it has ended without an answer, canceled or in a Final error; ErrAnswerGone if the
// answer has expired, or the key was used again; and ErrUnknownOperation if no operation has that
// id.
func Wait(ctx context.Context, pool *pgxpool.Pool, id string, opts ...idem.Option) (idem.Result, error) {
	id, err := parsedID(id)
	switch {
	case err != nil:
		return idem.Result{}, err
	case pool == nil:
		return idem.Result{}, errNoPool
	}
	if err := idem.CheckOptions(opts...); err != nil {
		return idem.Result{}, err
	}
	engine := engineOf(pool)
	pause := txn.Pauses{Current: 10 * time.Millisecond, Limit: time.Second}
	for {
		found := db.FindOperation{OperationID: id}
		switch err := engine.Query(ctx, &found); {
		case err != nil && ctx.Err() == nil:
			return idem.Result{}, err
		case err == nil && (!found.Found || found.State != db.OperationRunning):
			return answer(ctx, pool, &found, opts)
		case txn.Sleep(ctx, pause.Next()) != nil:
			return idem.Result{}, endOf(ctx)
		}
	}
}

// answer returns the answer of an operation that is not running.
func answer(ctx context.Context, pool *pgxpool.Pool, found *db.FindOperation, opts []idem.Option) (idem.Result, error) {
	switch {
	case !found.Found:
		return idem.Result{}, ErrUnknownOperation
	case found.State == db.OperationParked:
		return idem.Result{}, &ParkedError{
			OperationID: found.OperationID, Step: found.Step, Reason: Reason(found.Reason), ReasonText: found.ReasonText, Since: found.Since,
		}
	case found.State == db.OperationUndone:
		return idem.Result{}, ErrUndone
	}
	result, err := idemCalls.Do(ctx, pool, found.Scope, found.Key, found.Hash, opts, replayOnly{})
	switch {
	case errors.Is(err, idem.ErrMismatch), errors.Is(err, idem.ErrInProgress), err == nil && result.ExecutionID != found.OperationID:
		return idem.Result{}, ErrAnswerGone
	case err != nil:
		return idem.Result{}, err
	}
	return result, nil
}

// replayOnly is the Runner of a call that replays an answer. If there is none, it returns
// ErrAnswerGone.
type replayOnly struct{}

func (replayOnly) Begin(context.Context, bridge.Execution, *txn.Tx) bridge.Ending {
	return bridge.Ending{Outcome: bridge.Uncommitted, Err: ErrAnswerGone}
}

func (replayOnly) Resume(context.Context, bridge.Execution, string) bridge.Ending {
	return failedWith(ErrAnswerGone)
}

func (replayOnly) Ended(context.Context, bridge.Execution, string, func(context.Context, ...txn.Request) error) (bridge.Ending, bool) {
	return bridge.Ending{}, false
}
