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
// # Who works on an operation
//
// From its first commit to its last the record of an operation holds its key. Each process that
// takes the operation over begins another epoch, and a commit of an earlier epoch is refused as a
// whole: a process that was slow, or was taken for dead, has no effect. A process shows that it is
// alive by an advisory lock on a connection of its own, beside the pool, or, behind a pooler, by a
// lease of 30 seconds. A call with the same key resumes an operation that no process works on, and
// so does a [Worker]: run one in every process. A job queue uses [Due] and Resume instead.
//
// # Parked operations
//
// What cannot go on safely waits for a person: [Show] says where and why, [Resolve] states the
// outcome of a call, [Retry] resumes the operation, and [Cancel] has it undone. Steps are recognized
// by their position and their name. If new code asks for other steps than the recorded ones, the
// operation parks: [Op.Changed] lets new code follow another path, and [Replay] runs new code on the
// history of an operation. docs/operations-reference.md has the rules, limits and costs.
package operation

import (
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

// WithCodec sets how inputs and values are stored. The default is JSON, which decodes a number into
// an interface as a json.Number, so that it keeps its digits. Signals and errors are JSON in any
// case.
func WithCodec(codec Codec) Option {
	return func(d *definition) {
		if codec == nil {
			d.err = errors.New("operation: the codec is nil")
			return
		}
		d.codec = codec
	}
}

// WithDeadline sets for how long each call of the operation is tried again, counted from the commit
// before its first attempt, by the database's clock where the operation changes hands. A call that
// has not succeeded by then ends as after its last attempt: see [Policy.WithMaxAttempts]. An undo
// has no deadline. There is no limit by default.
func WithDeadline(d time.Duration) Option {
	return func(def *definition) {
		if d <= 0 {
			def.err = fmt.Errorf("operation: WithDeadline(%v): the deadline must be positive", d)
		}
		def.limit = d
	}
}

// WithErrors names errors of the program which the function of the operation gets as what they
// were, so that their own Is, As and interfaces work: sentinel errors, each by its value, and
// types, each by an example.
//
//	operation.WithErrors(ErrInsufficientFunds, &DeclinedError{})
//
// An error of a step is stored, and what is stored is what the function sees, in its first run as
// in every later one:
//
//   - Its text, up to 4 KiB, whether it is Final, and idem.Reject.
//   - errors.Is finds what it is or wraps by the type and the text of the target.
//   - errors.As finds what JSON shows: the exported fields of a type, or that it has none.
//   - An Is or As of its own, an interface, ==, a field that is not exported and what is wrapped in
//     a field are not there, unless the error is named here.
//
// Every definition knows, as if they were named, *pgconn.PgError, *net.DNSError, syscall.Errno, the
// errors of this module, and context.Canceled, context.DeadlineExceeded, io.EOF,
// io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, os.ErrDeadlineExceeded, sql.ErrNoRows,
// those of package io/fs, and ErrNoRows, ErrTooManyRows, ErrTxClosed and ErrTxCommitRollback of
// pgx.
//
// A type that is named must come back from JSON with the same text, and otherwise counts as one
// that is not. An error stays named, and a sentinel error keeps its text, for as long as operations
// in progress may have met it: they park if the program no longer knows it.
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

// WithMaxDeaths sets after how many deaths of its process an operation parks with
// ReasonTooManyDeaths: processes that have ended, one after the other, while they worked on it,
// without releasing it and without a commit in between. From the third death on it runs with no
// other such operation beside it in the process, so that one that dies with others is not taken for
// the cause; a number below 4 parks those, too. Callers that leave, errors and panics do not count.
// The default is 10.
func WithMaxDeaths(n int) Option {
	return func(d *definition) {
		if n < 1 {
			d.err = fmt.Errorf("operation: WithMaxDeaths(%d): the number must be positive", n)
		}
		d.maxDeaths = n
	}
}

// WithConcurrency sets how many operations of this kind one Worker works on at a time. The default
// is as many as WorkerConfig.Concurrency allows. Calls of Do and Resume are not limited.
func WithConcurrency(n int) Option {
	return func(d *definition) {
		if n < 1 {
			d.err = fmt.Errorf("operation: WithConcurrency(%d): the number must be positive", n)
		}
		d.atOnce = n
	}
}

// Define names a function whose steps are recorded. The name is stored: a program can resume an
// operation only if it has a definition of that name. All programs that use one database share its
// operations. Services that must not resume each other's operations begin the names with their own
// name, such as "billing/checkout".
//
// The function is ordinary Go, with branches and loops between its steps. It is run again from its
// top whenever the operation goes on after a crash or a pause: each recorded step returns what it
// returned, and is not taken again. So what decides which step comes next must come from in and
// from steps, and not from a clock, a random number or a map's order. Steps are taken one after the
// other, except for the calls of Parallel. An error of a step that the function does not expect is
// returned as it is, or wrapped.
//
// What the function returns ends the operation. A response is recorded and answers the key, as one
// of idem.Do does. After idem.Reject the operation is undone, and the rejection answers the key.
// After a Final error it is undone, too: the calls that have waited get the error, and the key is
// free. Any other error ends this run alone: if nothing is committed yet, everything is rolled back
// and the key is free, as with idem.Do; otherwise the operation goes on later, from its record.
func Define[In any](name string, fn func(op *Op, in In) (idem.Response, error), opts ...Option) *Definition[In] {
	d := &Definition[In]{definition{name: name, codec: jsonCodec{}, knownErrors: everywhere, maxDeaths: maxDeaths, err: checkName(name)}}
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

// Do executes the operation under the key, as idem.Do does with a fn: a call whose key is answered
// gets that answer, one with another hash idem.ErrMismatch, and one whose key is in progress waits
// for it, up to idem.WithWait, and then gets idem.ErrInProgress. If the operation was begun and no
// process works on it any more, this call resumes it with the recorded input and ignores in. If the
// operation that the call has waited for ends in a Final error, or is canceled, the call returns
// that error, whichever process has ended the operation, and does not begin another one.
//
// If ctx ends, the call releases the operation, between steps or by ending the Call in progress.
// Its error is then both idem.ErrInProgress and that of the context, unless nothing is committed
// yet. A later call with the same key, or a Worker, resumes the operation. An operation that sleeps,
// or waits for a signal, a child or another attempt, is in progress, too: the call waits for it, up
// to idem.WithWait, and resumes it when it is due, unless another process does.
//
// A Result means what it means with idem.Do. ErrParked says that a person must decide. Any other
// error ends this call alone, where something is committed already, and a call with the same key
// goes on.
func (d *Definition[In]) Do(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash idem.Hash, in In, opts ...idem.Option) (idem.Result, error) {
	input, err := d.input(in)
	if err != nil {
		return idem.Result{}, err
	}
	return idemCalls.Do(ctx, pool, scope, key, hash, d.options(opts), &caller{definition: &d.definition, input: input})
}

// Start makes the operation part of tx: it begins when that is committed, and a Worker does its
// work. Start returns the id of the operation. Start with the same key again returns the same id,
// whether or not the operation has ended. A key that another call is claiming is
// idem.ErrInProgress, at once. A key that was answered in a single transaction, by idem.Do or by a
// Do that had only Tx steps, belongs to no operation: the error is ErrUnknownOperation, and Do
// returns the answer.
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

// options are those of a call, which is named after its definition unless it has another name.
func (d *Definition[In]) options(opts []idem.Option) []idem.Option {
	name := idem.WithName(d.name)
	if idem.CheckOptions(name) != nil { // no metric could carry it
		return opts
	}
	return append([]idem.Option{name}, opts...)
}

// caller is a Do: the Runner of its call.
type caller struct {
	definition *definition
	input      []byte
	begun      *work // an operation of which it is not known whether its first commit has happened
}

// Begin executes the operation from its beginning, in the transaction that has claimed the key.
func (c *caller) Begin(ctx context.Context, e bridge.Execution, tx *txn.Tx) bridge.Ending {
	w := &work{definition: c.definition, call: e, key: e.Key(""), input: c.input, ttl: e.TTL(), createdAt: e.ClaimedAt(), journal: newJournal(nil)}
	w.operation = w.key.ExecutionID
	end := w.work(ctx, tx)
	if end.Outcome == bridge.Unknown {
		c.begun = w
	}
	return c.ended(ctx, w, end)
}

// Resume goes on with an operation that no process works on.
func (c *caller) Resume(ctx context.Context, e bridge.Execution, operation string) bridge.Ending {
	w := &work{definition: c.definition, call: e, operation: operation}
	if c.begun != nil && c.begun.operation == operation {
		w.epoch, w.unsent = c.begun.epoch, c.begun.unsent
	}
	end, taken := w.takeOver(ctx)
	if taken {
		end = w.work(ctx, nil)
	}
	return c.ended(ctx, w, end)
}

// ended is the ending of a call whose operation another process may have ended without an answer.
func (c *caller) ended(ctx context.Context, w *work, end bridge.Ending) bridge.Ending {
	if end.Outcome == bridge.Undone {
		if ended, ok := w.endedIn(ctx, w.call.Engine().Query); ok {
			return ended
		}
	}
	return end
}

// Ended returns the ending of a call that has waited for an operation, if that has ended without an
// answer.
func (c *caller) Ended(ctx context.Context, e bridge.Execution, operation string, ask func(context.Context, ...txn.Request) error) (bridge.Ending, bool) {
	return (&work{definition: c.definition, call: e, operation: operation}).endedIn(ctx, ask)
}

// endedIn returns the error in which an operation has ended, if that is undone: it is recorded
// behind the steps.
func (w *work) endedIn(ctx context.Context, ask func(context.Context, ...txn.Request) error) (bridge.Ending, bool) {
	show, steps := db.ShowOperation{OperationID: w.operation}, db.LoadSteps{OperationID: w.operation}
	if err := ask(ctx, &show, &steps); err != nil {
		return w.unavailable(ctx, err), true
	}
	switch {
	case !show.Found || show.State != db.OperationUndone:
		return bridge.Ending{}, false
	case show.Canceled:
		return failedWith(ErrCanceled), true
	}
	end := error(&endedError{cause: ErrUndone})
	for i := range steps.Rows {
		s := &steps.Rows[i]
		if s.Kind != db.EndStep {
			continue
		}
		stored, err := open(w.call.Sealer(), s.Value, db.BoundStep(w.operation, s))
		if err != nil {
			return failedWith(err), true
		}
		if ended, err := restore(w.definition.knownErrors, stored); err == nil { // or else the code no longer names it
			end = &endedError{cause: ofFunction(ended)}
		}
	}
	return failedWith(end), true
}

// Wait waits until the operation has ended, and returns its answer, which Do of its key would
// return too. It does not work on the operation: that is for a Worker, or for callers of Do. Wait
// asks the database again after a pause that grows to a second, and holds no connection between two
// looks. Of the options, idem.WithSealer matters.
//
// The error is that of ctx if ctx ends first; ErrParked, at once, if the operation is parked;
// ErrUndone if it has ended without an answer, canceled or in a Final error; ErrAnswerGone if the
// answer has expired, or the key was used again; ErrUnknownOperation if there is no operation of
// that id.
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
		if err := engine.Query(ctx, &found); err != nil && ctx.Err() != nil {
			return idem.Result{}, endOf(ctx)
		} else if err != nil {
			return idem.Result{}, err
		}
		if found.Found && found.State == db.OperationRunning {
			if err := txn.Sleep(ctx, pause.Next()); err != nil {
				return idem.Result{}, endOf(ctx)
			}
			continue
		}
		return answer(ctx, pool, &found, opts)
	}
}

// answer returns the answer of an operation that does not run.
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
	result, err := idemCalls.Do(ctx, pool, found.Scope, found.Key, found.Hash, opts, onlyReplay{})
	switch {
	case errors.Is(err, idem.ErrMismatch), errors.Is(err, idem.ErrInProgress), err == nil && result.ExecutionID != found.OperationID:
		return idem.Result{}, ErrAnswerGone
	case err != nil:
		return idem.Result{}, err
	}
	return result, nil
}

// onlyReplay is the Runner of a call that replays an answer, and does nothing if there is none.
type onlyReplay struct{}

func (onlyReplay) Begin(context.Context, bridge.Execution, *txn.Tx) bridge.Ending {
	return bridge.Ending{Outcome: bridge.Uncommitted, Err: ErrAnswerGone}
}

func (onlyReplay) Resume(context.Context, bridge.Execution, string) bridge.Ending {
	return failedWith(ErrAnswerGone)
}

func (onlyReplay) Ended(context.Context, bridge.Execution, string, func(context.Context, ...txn.Request) error) (bridge.Ending, bool) {
	return bridge.Ending{}, false
}
