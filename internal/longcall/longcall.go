// Package longcall is what package operation asks of package idem: a call whose key stays taken after its first transaction.
//
// Package idem does what belongs to the key, as for any call: it claims it, answers duplicates, waits for the call that has it, finds out what
// a COMMIT has done, and records the answer. What happens under the key is up to a Runner.
package longcall

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// Response is idem.Response.
type Response struct {
	Status int
	Header map[string][]string
	Body   []byte
}

// Runner executes a call, in as many transactions as it needs.
type Runner interface {
	// Begin executes the call from its beginning, in the transaction that has claimed the key.
	Begin(ctx context.Context, e Execution, tx *txn.Tx) Ending

	// Resume goes on with the operation that has the key, unless another process does.
	Resume(ctx context.Context, e Execution, operationID string) Ending

	// Ended returns the ending of this call if an operation has ended that the call has waited for, and has left its key free or to others.
	Ended(ctx context.Context, e Execution, operationID string, ask func(context.Context, ...txn.Request) error) (Ending, bool)
}

// Step is a step that was taken, or an attempt at one.
type Step struct {
	Operation, Name, Kind, Step string
	Err                         error
	Unknown                     bool // it is not known whether it has happened
	Duration                    time.Duration
}

// Ending is what a Runner came to.
type Ending struct {
	Outcome  Outcome
	Response Response   // if Outcome is Unheld and Err is nil
	Record   *db.Record // if Outcome is Recorded
	Err      error
}

// ForDuplicates is an error of a Runner that is the answer of every call that has waited for this one, too.
type ForDuplicates interface {
	error
	ForDuplicates()
}

// Rejecter is an error of idem.Reject.
type Rejecter interface {
	error
	Rejection() Response
}

// RejectionOf returns the answer that an error of idem.Reject carries.
func RejectionOf(err error) (Response, bool) {
	if rejected, ok := errors.AsType[Rejecter](err); ok {
		return rejected.Rejection(), true
	}
	return Response{}, false
}

// Outcome says what to do with the key.
type Outcome int

// The outcomes.
const (
	Unheld    Outcome = iota // nothing is committed: the answer, or the error, belongs into the transaction of the claim
	Undone                   // nothing is committed, for the reason Err, which makes it worth another run
	Unknown                  // the first COMMIT was not acknowledged, because of Err
	Recorded                 // the answer is on record
	Elsewhere                // the operation is another's to go on with, or without an owner for the time being
	Ended                    // the operation has: its record tells
	Freed                    // the operation has, and its key is free
	Failed                   // Err is the answer of this call
)

// Execution is the call as its Runner sees it.
type Execution interface {
	// Engine returns the engine for further transactions.
	Engine() *txn.Engine

	// Key returns the key as an operation has it, "" being the one that this call would begin.
	Key(operationID string) db.Key

	// ClaimedAt is when the key was claimed, by the clock of the database.
	ClaimedAt() time.Time

	// TTL is for how long the answer is replayed.
	TTL() time.Duration

	// MaxResponse is the limit for the answer, in bytes.
	MaxResponse() int

	// Retries is how often a transaction is run again.
	Retries() int

	// Sealer seals what is kept, and opens it again. Nil keeps it plain.
	Sealer() db.Sealer

	// StepTaken tells an observer of a step, if there is one that wants to know.
	StepTaken(ctx context.Context, s Step)

	// Completion returns the request that records an answer.
	Completion(key *db.Key, resp Response, state db.State) (*db.Complete, error)
}

// Door is what package idem lets in by: the types of its options and results are its own, which this package cannot name.
type Door[Option, Result any] struct {
	// Do is idem.Do with a Runner in the place of fn.
	Do func(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash [32]byte, options []Option, runner Runner) (Result, error)

	// Start claims the key inside tx, and sends requests that make it an operation's. It returns the id of the operation that
	// has the key, be it this one or an earlier one.
	Start func(ctx context.Context, tx pgx.Tx, scope, key string, hash [32]byte, options []Option, requests func(e Execution, key *db.Key, claimedAt time.Time) ([]txn.Request, error)) (operationID string, err error)

	// From is an option, of package idemsql: the connections of the call are those of source. Without one it is refused.
	From func(source txn.Source) Option

	// Source returns that of the options, nil if they have none.
	Source func(options []Option) (txn.Source, error)

	// Sealer returns the Sealer that is among the options, nil if none is.
	Sealer func(options []Option) (db.Sealer, error)

	// Settings returns the Execution of an operation that has its key already.
	Settings func(pool *pgxpool.Pool, scope, key string, hash [32]byte, ttl time.Duration, options []Option) (Execution, error)
}

var door any

// Leave is called by package idem, when the program begins.
func Leave[Option, Result any](d Door[Option, Result]) { door = d }

// Open returns what package idem has left. Other types than it has left are a mistake of this repository, which no program outlives the
// beginning of.
func Open[Option, Result any]() Door[Option, Result] { return door.(Door[Option, Result]) }
