// Package operation makes work of several steps safe to retry: reserve, charge a card, confirm.
// Some of the steps may call other systems. Such work has the contract of package idem: one key,
// one outcome, whatever crashes.
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
//		if errors.Is(err, bank.ErrDeclined) { // bank.Charge returns operation.Final(bank.ErrDeclined)
//			return idem.Response{}, idem.Reject(declined) // undoes the done steps
//		}
//		…
//	}
//
//	res, err := Checkout.Do(ctx, pool, scope, key, hash, cart)
//
// The function is ordinary Go. After a crash the function runs again from its first line. Each
// recorded step returns its stored outcome, and is not executed again.
//
// # Steps
//
// The outcome of a step is stored: a value or an error. Even in its first run the function sees the
// stored form, so that every run sees the same: a value as its codec decodes it, and an error as
// described at [WithErrors].
//
//   - [Tx] is a step in Postgres: its writes and its value are committed together. Consecutive Tx
//     steps share a transaction. [Exec] is a Tx without a value.
//   - [Call] is a step in another system. It runs after all earlier steps are committed, in no
//     transaction and without a connection. All its attempts have the same key. Its [Policy] says
//     what happens when its outcome is in doubt: [Keyed], [Asked] or [Once].
//   - [Parallel] makes several calls at the same time, each a step of its own.
//   - [Sleep] pauses the operation. [Await] waits for a value that [Signal] sends.
//   - [Child] begins an operation of another definition and awaits its answer. The commit that
//     records the step also begins the child.
//
// An [Undo] reverses a step, and is an argument of that step.
//
// # What is guaranteed
//
//   - An operation has one outcome. Every call with its key gets this outcome, as with idem.Do.
//   - A Tx step is committed once, together with its value, or not at all.
//   - A Call has the same key in every attempt and in every process. A Call with the policy Once is
//     not repeated after an attempt that may have been sent.
//   - A Call is made only after all earlier steps are committed durably, even if synchronous_commit
//     is off. Later steps see the value that the Call has returned.
//   - When an operation is rejected, ends in a Final error or is canceled, the undos of the done
//     steps run in reverse order. Each runs once, and all run before the answer. Uncommitted writes
//     are rolled back.
//   - An operation that cannot continue safely parks: it waits for a person, and its calls return
//     [ErrParked]. A [Reason] says why. Nothing is guessed.
//
// A Call with the policy Keyed or Asked is made at least once. Its effect happens once if the other
// system behaves as the policy says.
//
// If the process of an operation dies, a call with the same key resumes the operation, and so does
// a [Worker]: run a Worker in every process. If a living process was taken for dead, its next
// commit is refused.
//
// For a parked operation, see [Show], [Resolve], [Retry] and [Cancel]. A recorded step is
// recognized by its position and its name. [Op.Changed] lets new code take another path than the
// code before it, and [Replay] runs new code on the history of an operation.
// docs/operations-reference.md has the rules and the costs.
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

// Option configures a Definition.
type Option func(*definition)

// WithCodec sets how inputs and values of steps are stored. The default is JSON. For a number in a
// value of an interface type, the default returns a json.Number, which keeps all digits. Signals
// and errors are always stored as JSON.
func WithCodec(codec Codec) Option {
	return func(d *definition) {
		if codec == nil {
			d.err = errors.New("operation: the codec is nil")
			return
		}
		d.codec = codec
	}
}

// WithDeadline limits how long each call of the operation is retried. The time counts from the
// commit before the first attempt. If another process resumes the operation, it reads the time of
// that commit by the database's clock. A call that has not succeeded by the deadline ends as after
// its last attempt: see [Policy.WithMaxAttempts]. An undo has no deadline. There is no limit by
// default.
func WithDeadline(d time.Duration) Option {
	return func(def *definition) {
		def.limit, def.err = d, cmp.Or(positive("WithDeadline", d, "deadline"), def.err)
	}
}

// WithErrors registers errors that the function of the operation gets back unchanged when a
// recorded step returns them. Is, As and the methods of the errors then work. Pass each sentinel
// error itself, and one example of each error type:
//
//	operation.WithErrors(ErrInsufficientFunds, &DeclinedError{})
//
// Even in its first run the function sees the stored form of an error. It has the text of the
// error. It also has the types, texts and exported fields of the error and of all errors that it
// wraps. An error that is not registered loses its own methods, its unexported fields, and
// comparison by ==. Every definition knows the errors of this module and common errors of pgx, net,
// io and context.
//
// A value of a registered type must have the same text after it is encoded to JSON and decoded.
// Otherwise it is treated as not registered. Keep an error registered, and the text of a sentinel
// error unchanged, while operations in progress may have recorded it. An operation parks if the
// program no longer knows a recorded error.
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

// WithMaxDeaths sets the number of deaths after which an operation parks with ReasonTooManyDeaths.
// A death is a process that ended while it worked on the operation, without releasing it. A commit
// of the operation resets the number. Callers that leave, errors and panics do not count. The
// default is 10.
//
// Of the operations with three or more deaths, a process runs one at a time, but begins the next
// after 10 seconds at the latest. If one of them kills the process, no death counts against the
// others, and they do not park. If n is below 4, an operation may park although another operation
// has killed its processes.
func WithMaxDeaths(n int) Option {
	return func(d *definition) {
		d.maxDeaths, d.err = n, cmp.Or(positive("WithMaxDeaths", n, "number"), d.err)
	}
}

// WithConcurrency sets how many operations of this definition one Worker works on at a time. The
// default is the limit of WorkerConfig.Concurrency. Calls of Do and Resume are not limited.
func WithConcurrency(n int) Option {
	return func(d *definition) {
		d.concurrency, d.err = n, cmp.Or(positive("WithConcurrency", n, "number"), d.err)
	}
}

// Define returns a Definition: a name, and a function whose steps are recorded. The name is stored,
// and a program can resume an operation only if it has a definition of that name. All programs that
// use a database share the operations in it. If services must not resume each other's operations,
// begin each name with the name of the service, such as "billing/checkout".
//
// The function is ordinary Go, with branches and loops between its steps. Whenever the operation
// continues after a crash or a pause, the function runs again from its first line. Each recorded
// step returns its stored outcome, and is not executed again. Every run must ask for the same
// steps. The choice of the next step may depend on the input and on results of earlier steps. It
// must not depend on a clock, a random number or the order of a map. Take steps one after the
// other, except for the calls of Parallel. If a step returns an unexpected error, return it
// unchanged or wrapped.
//
// The result of the function decides how the operation continues:
//
//   - A response is recorded and answers the key, as with idem.Do.
//   - After idem.Reject the operation is undone, and the rejection answers the key.
//   - After a Final error the operation is undone, too. The calls that wait for it get the error,
//     and the key is free.
//   - Any other error ends only this run. If nothing is committed yet, everything is rolled back
//     and the key is free, as with idem.Do. Otherwise the operation continues later, from its
//     record.
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

// Do executes the operation under the key, as idem.Do executes its fn. If the key is answered, Do
// returns the answer. If the key belongs to a request with another hash, Do returns
// idem.ErrMismatch. If the key is in progress, Do waits up to idem.WithWait, and then returns
// idem.ErrInProgress. If an operation was begun and no process works on it any more, Do resumes the
// operation with the recorded input and ignores the argument in. If Do waits for an operation that
// is canceled or ends in a Final error, Do returns that error, and does not begin another
// operation.
//
// If ctx ends, Do releases the operation, and a Call in progress ends with its context. If
// something is committed, the returned error wraps both idem.ErrInProgress and the error of ctx. A
// later call with the same key, or a Worker, resumes the operation. An operation also counts as in
// progress while it sleeps, or waits for a signal, a child or another attempt. Do waits for such an
// operation up to idem.WithWait, and resumes it when it is due, unless another process does.
//
// A Result means what it means with idem.Do. ErrParked says that a person must decide. A Final
// error and ErrCanceled have ended the operation. After any other error only this call has ended:
// if something is committed, a call with the same key continues the operation.
func (d *Definition[In]) Do(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash idem.Hash, in In, opts ...idem.Option) (idem.Result, error) {
	input, err := d.input(in)
	if err != nil {
		return idem.Result{}, err
	}
	return idemCalls.Do(ctx, pool, scope, key, hash, d.options(opts), &caller{definition: &d.definition, input: input})
}

// Start records a new operation in tx and returns its id. The operation begins when tx is
// committed, and a Worker does the work. Start with the same key again returns the same id, even if
// the operation has ended with an answer. If another call is claiming the key, Start returns
// idem.ErrInProgress at once. A key that was answered in a single transaction has no operation.
// This is so after idem.Do, and after a Definition.Do with only Tx steps. Start then returns
// ErrUnknownOperation; call Definition.Do to get the answer.
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

// options returns the options of a call, with the name of the definition as the first one. A
// WithName in opts overrides this name. If the name is not valid for metrics, options returns opts
// unchanged.
func (d *Definition[In]) options(opts []idem.Option) []idem.Option {
	name := idem.WithName(d.name)
	if idem.CheckOptions(name) != nil {
		return opts
	}
	return append([]idem.Option{name}, opts...)
}

// caller implements bridge.Runner for one call of Do.
type caller struct {
	definition *definition
	input      []byte
	begun      *work // the work that Begin started, if its first COMMIT was not acknowledged
}

// Begin executes a new operation. Its first steps run in tx, which has claimed the key.
func (c *caller) Begin(ctx context.Context, e bridge.Execution, tx *txn.Tx) bridge.Ending {
	w := &work{definition: c.definition, execution: e, key: e.Key(""), input: c.input, ttl: e.TTL(), createdAt: e.ClaimedAt(), journal: newJournal(nil)}
	w.operation = w.key.ExecutionID
	end := w.run(ctx, tx)
	if end.Outcome == bridge.Unknown {
		c.begun = w
	}
	return c.ended(ctx, w, end)
}

// Resume continues an operation that no process works on. If the first COMMIT of Begin was not
// acknowledged, Resume still knows which calls of the operation were not sent.
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

// ended returns end, unless another process has ended the operation in an error and freed the key.
// Then ended returns an ending with that error.
func (c *caller) ended(ctx context.Context, w *work, end bridge.Ending) bridge.Ending {
	if end.Outcome == bridge.Undone {
		if ended, ok := w.endedIn(ctx, w.execution.Engine().Query); ok {
			return ended
		}
	}
	return end
}

// Ended returns the ending of a call that has waited for the operation. It returns false unless the
// operation is undone, and so has no answer.
func (c *caller) Ended(ctx context.Context, e bridge.Execution, operation string, ask func(context.Context, ...txn.Request) error) (bridge.Ending, bool) {
	return (&work{definition: c.definition, execution: e, operation: operation}).endedIn(ctx, ask)
}

// endedIn returns the ending of a call whose operation is undone. If the operation was canceled,
// the error of the ending is ErrCanceled. Otherwise the error wraps the recorded error of the
// function. endedIn returns false if the operation is not undone.
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
		if ended, err := restore(w.definition.knownErrors, stored); err == nil { // otherwise the program no longer knows the recorded error
			cause = runError(ended)
		}
	}
	return failedWith(&endedError{cause: cause}), true
}

// Wait waits until the operation has ended, and returns its answer, as Do would for the same key.
// Wait does not work on the operation: a Worker or callers of Do have to. Wait polls the database
// with a pause that grows to a second, and has no connection between two polls. Of the options,
// only idem.WithSealer has an effect.
//
// Wait returns
//
//   - the error of ctx, if ctx ends first;
//   - ErrParked, at once, if the operation is parked;
//   - ErrUndone if the operation was canceled or ended in a Final error;
//   - ErrAnswerGone if the answer has expired, or the key was used again;
//   - ErrUnknownOperation if no operation has the id.
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

// replayOnly implements bridge.Runner for a call that may only replay an answer. If there is no
// answer, the call returns ErrAnswerGone.
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
