// Package bridge gives other packages of this module access to functions of package idem that are
// not exported.
//
// Package operation uses a form of Do that keeps its key after the first transaction. Package idem
// does everything that concerns the key, as for Do: it claims the key, answers duplicates, and
// waits for the call that has the key. It also settles a COMMIT without an acknowledgement, and
// records the response. A Runner does the work under the key. Package idemsql uses the option that
// takes connections from a *sql.DB. Tests use options that are not exported.
//
// Package idem imports this package, so this package cannot import package idem and use its types.
// The type API is generic for that reason. Package idem calls Register, and the other packages call
// Get.
package bridge

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// Response has the fields of idem.Response.
type Response struct {
	Status int
	Header map[string][]string
	Body   []byte
}

// Runner executes a call in as many transactions as the call needs.
type Runner interface {
	// Begin executes the call from its start. tx is the transaction that has claimed the key.
	Begin(ctx context.Context, e Execution, tx *txn.Tx) Ending

	// Resume continues the operation that holds the key, unless it is in progress in another
	// process.
	Resume(ctx context.Context, e Execution, operationID string) Ending

	// Ended returns the ending of a call that has waited for the operation, if the operation ended
	// without a response. Otherwise it returns false. The function ask sends requests in one round
	// trip.
	Ended(ctx context.Context, e Execution, operationID string, ask func(context.Context, ...txn.Request) error) (Ending, bool)
}

// Step describes one attempt at a step, for an observer.
type Step struct {
	Operation, Name, Kind, Step string
	Err                         error
	Unknown                     bool // the outcome is not known, because no answer has arrived
	Duration                    time.Duration
}

// Ending is the result of Runner.Begin and Runner.Resume.
type Ending struct {
	Outcome  Outcome
	Response Response   // set if Outcome is Uncommitted and Err is nil
	Record   *db.Record // set if Outcome is Recorded
	Err      error
}

// ForDuplicates marks an error of a Runner. Every call that waits for the operation returns the
// error, too.
type ForDuplicates interface {
	error
	ForDuplicates()
}

// Rejecter is implemented by the error of idem.Reject.
type Rejecter interface {
	error
	Rejection() Response
}

// RejectionOf returns the response of an idem.Reject error. It reports false if err is not and does
// not wrap such an error.
func RejectionOf(err error) (Response, bool) {
	if rejected, ok := errors.AsType[Rejecter](err); ok {
		return rejected.Rejection(), true
	}
	return Response{}, false
}

// Outcome says in which state the Runner has left the key.
type Outcome int

const (
	// Uncommitted: the work fit into the transaction of the claim, which is still open. Package
	// idem commits it with Response, or rolls it back because of Err.
	Uncommitted Outcome = iota
	// RolledBack: the transaction was rolled back because of Err. The call may run again.
	RolledBack
	// Unknown: the first COMMIT of the operation was not acknowledged, because of Err, so the COMMIT
	// may have happened. Package idem looks for the record. The Runner itself handles a later COMMIT
	// without an acknowledgment.
	Unknown
	// Recorded: Record is committed.
	Recorded
	// InProgress: this call does not finish the operation. Another process may be working on it.
	InProgress
	// Finished: the operation finished in another process. Its record has to be loaded again.
	Finished
	// Undone: the operation was undone in another process, and its key is free.
	Undone
	// Failed: the call returns Err.
	Failed
)

// Execution gives a Runner access to the call that it executes.
type Execution interface {
	// Engine returns the engine for further transactions.
	Engine() *txn.Engine

	// Key returns the key under which the given operation has its record. If operationID is empty,
	// Key returns the key for the operation that the Runner is about to begin.
	Key(operationID string) db.Key

	// ClaimedAt returns when the key was claimed, by the clock of the database.
	ClaimedAt() time.Time

	// TTL returns for how long the response is replayed.
	TTL() time.Duration

	// MaxResponse returns the size limit of the response in bytes.
	MaxResponse() int

	// Retries returns the maximum number of times that a transaction is run again.
	Retries() int

	// Sealer returns the Sealer for inputs and values. It returns nil if they are stored plain.
	Sealer() db.Sealer

	// StepTaken reports a step to the observer of the call, if the observer wants steps.
	StepTaken(ctx context.Context, s Step)

	// Completion returns the request that records a response under key.
	Completion(key *db.Key, resp Response, state db.State) (*db.Complete, error)
}

// API has the functions of package idem that this package makes available. Option and Result are
// idem.Option and idem.Result.
type API[Option, Result any] struct {
	// Do is idem.Do with a Runner in place of fn.
	Do func(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash [32]byte, options []Option, runner Runner) (Result, error)

	// Start claims the key in tx, and sends the requests that store an operation under the key. It
	// returns the id of the operation that has the key: the new operation, or an earlier one.
	Start func(ctx context.Context, tx pgx.Tx, scope, key string, hash [32]byte, options []Option, requests func(e Execution, key *db.Key, claimedAt time.Time) ([]txn.Request, error)) (operationID string, err error)

	// WithSource returns the option by which a call takes its connections from source. If source is
	// nil, the call fails.
	WithSource func(source txn.Source) Option

	// Source returns the source in the options. It returns nil if they have none.
	Source func(options []Option) (txn.Source, error)

	// Sealer returns the Sealer in the options. It returns nil if they have none.
	Sealer func(options []Option) (db.Sealer, error)

	// Execution returns the Execution of an operation that already has its key.
	Execution func(pool *pgxpool.Pool, scope, key string, hash [32]byte, ttl time.Duration, options []Option) (Execution, error)

	// WithLimits is an option for tests. It limits the time that a call waits for a connection, the
	// time that it waits for the answer to COMMIT, and the time that it tries to learn the outcome
	// of a COMMIT.
	WithLimits func(acquire, commit, resolve time.Duration) Option

	// WithLock is an option for tests. It replaces the advisory lock of the key by the lock that
	// the function returns. If the function returns nil, the call takes no advisory lock.
	WithLock func(lock func(scope, key string) *int64) Option
}

var registered any

// Register makes api available to Get. Package idem calls it in init.
func Register[Option, Result any](api API[Option, Result]) { registered = api }

// Get returns the registered API. It panics if the type arguments are not those of package idem.
func Get[Option, Result any]() API[Option, Result] { return registered.(API[Option, Result]) }
