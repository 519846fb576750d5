package operation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/longcall"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// door is what package idem does of a call that keeps its key.
var door = longcall.Open[idem.Option, idem.Result]()

// Definition is a kind of operation: a name, and the function that is its code.
type Definition[In any] struct {
	definition
}

// Runnable is a Definition, for a Worker.
type Runnable interface{ defined() *definition }

func (d *definition) defined() *definition { return d }

// Option changes a Definition.
type Option func(*definition)

// WithCodec sets how inputs and values are stored. The default is JSON, which makes a json.Number of a number that goes into an interface, so
// that it keeps its digits. The function is given what Decode makes of what Encode has stored, in its first run as in every later one.
// Signals and errors are JSON in any case.
func WithCodec(codec Codec) Option {
	return func(d *definition) {
		if codec == nil {
			d.err = errors.New("operation: the codec is nil")
			return
		}
		d.codec = codec
	}
}

// WithDeadline sets for how long each call of the operation is tried again, counted from the commit before its first attempt, by the
// database's clock where the operation changes hands. Nothing else counts: not Sleep, not Await, not the steps before the call. A
// call that has not succeeded by then ends as Attempts says. An undo has no deadline. The default is no limit.
func WithDeadline(d time.Duration) Option {
	return func(def *definition) {
		if d <= 0 {
			def.err = fmt.Errorf("operation: WithDeadline(%v): a deadline is positive", d)
		}
		def.limit = d
	}
}

// WithErrors names errors of the program which the function of the operation is given as what they were, so that their own Is, As and
// interfaces work: sentinel errors, each by its value, and types, each by an example.
//
//	operation.WithErrors(ErrInsufficientFunds, &DeclinedError{})
//
// An error of a step is stored, and what is stored is what the function sees, in its first run as in every later one:
//
//   - Its text, up to 4 KiB, whether it is Final, and idem.Reject.
//   - errors.Is finds what it is or wraps by the type and the text of the target.
//   - errors.As finds what JSON shows: the exported fields of a type, or that it has none.
//   - An Is or As of its own, an interface, ==, a field that is not exported and what is wrapped in a field are not there, unless the
//     error is named here.
//
// Known to every definition, as if they were named, are *pgconn.PgError, *net.DNSError, syscall.Errno, the errors of this module, and
// context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, os.ErrDeadlineExceeded, sql.ErrNoRows,
// those of package io/fs, and ErrNoRows, ErrTooManyRows, ErrTxClosed and ErrTxCommitRollback of pgx.
//
// A type that is named has to come back from JSON with the same text, and otherwise counts as one that is not. An error stays named, and a
// sentinel error keeps its text, for as long as operations under way may have met it: they are parked if the program no longer knows it.
func WithErrors(errs ...error) Option {
	return func(d *definition) {
		for _, err := range errs {
			if err == nil {
				d.err = fmt.Errorf("operation: WithErrors: an error is nil")
				return
			}
			if d.known.confuse(err) {
				d.err = fmt.Errorf("operation: WithErrors: nothing tells two errors %T %q apart", err, textOf(err))
				return
			}
			d.known = append(d.known, knownError{error: err})
		}
	}
}

// WithMaxDeaths sets after how many deaths of its process an operation is parked: of processes that have ended, one after the other,
// while they worked on it, without releasing it and without a commit in between, as if it were what kills them. From the third one
// on it is worked on with no other such operation beside it in the process, so that one that dies with others is not taken for the
// guilty one; a number below 4 parks those, too. Callers that leave, errors and panics do not count. The default is 10.
func WithMaxDeaths(n int) Option {
	return func(d *definition) {
		if n < 1 {
			d.err = fmt.Errorf("operation: WithMaxDeaths(%d): the number is positive", n)
		}
		d.maxDeaths = n
	}
}

// WithConcurrency sets how many operations of this kind one Worker works on at a time, at most. The default is as many as
// WorkerConfig.Concurrency allows. Calls of Do and Resume are not limited.
func WithConcurrency(n int) Option {
	return func(d *definition) {
		if n < 1 {
			d.err = fmt.Errorf("operation: WithConcurrency(%d): the number is positive", n)
		}
		d.atOnce = n
	}
}

// Define names a function whose steps are remembered. The name is stored: a program that is to go on with an operation has to
// have a definition of that name. All programs that use one database share its operations: services that are not to go on with each other's
// name theirs after themselves, such as "billing/checkout".
//
// The function is ordinary Go, with branches and loops between its steps. It is run again from its top whenever the operation
// goes on after a crash or a pause: each step that is on record returns what it returned, and is not taken again. So what
// decides which step comes next has to come from in and from steps, and not from a clock, a random number or a map's order.
// Steps are taken one after the other, except for the calls of Parallel. An error of a step that the function does not expect is returned as it is, or wrapped.
//
// What it returns ends the operation. A response is recorded and answers the key, as one of idem.Do does. idem.Reject undoes
// what was done, in reverse, and is as final. An error that is Final undoes it, too: the calls that have waited are told the error, and the key is
// free after that. Any other error
// ends this run alone: if nothing is committed yet, everything is rolled back and the key is free, as with idem.Do; otherwise
// the operation goes on later, from what is on record.
func Define[In any](name string, fn func(op *Op, in In) (idem.Response, error), opts ...Option) *Definition[In] {
	d := &Definition[In]{definition{name: name, codec: jsonCodec{}, known: everywhere, maxDeaths: maxDeaths, err: checkName(name)}}
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
			return idem.Response{}, op.park("the recorded input does not decode into %T: the code has changed", in)
		}
		return fn(op, in)
	}
	return d
}

// Do executes the operation under the key, as idem.Do does with a fn: a call whose key is answered gets that answer, one with
// another hash idem.ErrMismatch, and one whose key is another's waits for it, up to idem.WithWait, and then gets
// idem.ErrInProgress. If the operation was begun and no process works on it any more, this call goes on with it, whatever in is. If the
// operation that it has waited for ends in an error that is Final, or is cancelled, this call returns that error, whichever process has
// ended it, and begins nothing anew.
//
// If ctx ends, the call lets go of the operation, between steps or by ending the Call under way. Its error is then both
// idem.ErrInProgress and that of the context, unless nothing is committed yet. The next one goes on: a call with the same
// key, or a Worker. An operation that sleeps, waits for a signal, a child or another attempt is in progress, too: the call waits for it, up to
// idem.WithWait, and goes on with it when that is over, unless another process does. If ctx ends meanwhile its error is that of the
// context alone, as with idem.Do.
//
// A Result means what it means with idem.Do. ErrParked says that a person has to see to the operation. Any other error ends
// this call alone, where something is committed already, and a call with the same key goes on.
func (d *Definition[In]) Do(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash idem.Hash, in In, opts ...idem.Option) (idem.Result, error) {
	input, err := d.input(in)
	if err != nil {
		return idem.Result{}, err
	}
	return door.Do(ctx, pool, scope, key, hash, d.options(opts), &caller{definition: &d.definition, input: input})
}

// Start makes the operation part of tx: it begins when that is committed, and a Worker does its work. What it returns is the id
// of the operation. Start with the same key again returns the id that it has already, whether or not the operation has ended.
// A key that another call is claiming is idem.ErrInProgress, at once.
func (d *Definition[In]) Start(ctx context.Context, tx pgx.Tx, scope, key string, hash idem.Hash, in In, opts ...idem.Option) (id string, err error) {
	input, err := d.input(in)
	if err != nil {
		return "", err
	}
	return door.Start(ctx, tx, scope, key, hash, d.options(opts), func(e longcall.Execution, k *store.Key, claimedAt time.Time) ([]txn.Request, error) {
		sealed, err := seal(e.Sealer(), input, store.BoundInput(k.ExecutionID))
		return []txn.Request{
			&store.HoldKey{Key: k, Room: store.Held},
			&store.BeginOperation{Key: k, Name: d.name, TTL: e.TTL(), ClaimedAt: claimedAt, Input: sealed, At: store.At{Kind: store.Started}},
		}, err
	})
}

// options are those of a call, which is named after its definition unless it has another name.
func (d *Definition[In]) options(opts []idem.Option) []idem.Option {
	name := idem.WithName(d.name)
	if idem.CheckOptions(name) != nil { // it is none that a metric could carry
		return opts
	}
	return append([]idem.Option{name}, opts...)
}

// input returns the input as it is stored.
func (d *Definition[In]) input(in In) ([]byte, error) {
	if d.err != nil {
		return nil, d.err
	}
	input, _, err := encode(d.codec, in)
	return input, err
}

// caller is a Do: the Runner of its call.
type caller struct {
	definition *definition
	input      []byte
	begun      *work  // an operation of which it is not known whether its first commit has happened
	met        string // an operation that had the key when this call came
}

// Begin executes the operation from its beginning, in the transaction that has claimed the key.
func (c *caller) Begin(ctx context.Context, e longcall.Execution, tx *txn.Tx) longcall.Ending {
	w := &work{definition: c.definition, call: e, key: e.Key(""), input: c.input, ttl: e.TTL(), createdAt: e.ClaimedAt()}
	w.operation = w.key.ExecutionID
	if c.met != "" {
		met := work{definition: c.definition, call: e, operation: c.met}
		if end, ok := met.endedIn(ctx, tx.Ask); ok {
			return end
		}
	}
	end := w.work(ctx, tx)
	if w.epoch > 0 {
		c.met = w.operation
	}
	if end.Outcome == longcall.Unknown {
		c.begun = w
	}
	return c.freed(ctx, w, end)
}

// freed is the ending of a call whose operation another process has ended without an answer.
func (c *caller) freed(ctx context.Context, w *work, end longcall.Ending) longcall.Ending {
	if end.Outcome == longcall.Freed {
		if told, ok := w.endedIn(ctx, w.call.Engine().Query); ok {
			return told
		}
	}
	return end
}

// Resume goes on with an operation that no process works on.
func (c *caller) Resume(ctx context.Context, e longcall.Execution, operation string) longcall.Ending {
	c.met = operation
	w := &work{definition: c.definition, call: e, operation: operation}
	if c.begun != nil && c.begun.operation == operation {
		w.epoch = c.begun.epoch
	}
	end, taken := w.takeUp(ctx)
	if taken {
		end = w.work(ctx, nil)
	}
	return c.freed(ctx, w, end)
}
