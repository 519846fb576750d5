package idemriver

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// Definition is a kind of operation that River's workers run.
type Definition[In any] struct {
	// InsertOpts are the options of the jobs that run these operations: queue, priority, tags,
	// attempts. The package replaces UniqueOpts.
	InsertOpts river.InsertOpts

	name      string
	operation *operation.Definition[In]
}

// Define returns a Definition of the operations with this name. Its arguments are those of
// operation.Define.
func Define[In any](name string, fn func(op *operation.Op, in In) (idem.Response, error), opts ...operation.Option) *Definition[In] {
	return &Definition[In]{name: name, operation: operation.Define(name, fn, opts...)}
}

// Job is the arguments of a job that runs an operation. It has neither the key nor the input of the
// operation, so that River's tables do not contain them.
type Job struct {
	Operation string `json:"operation"`
	Name      string `json:"name"`
	Epoch     int    `json:"epoch"` // the epoch of the operation when the job was inserted; a claim of the operation increments it
	Round     int    `json:"round"` // the number of earlier jobs for the same operation and epoch
}

// Kind returns the kind of all jobs that run operations.
func (Job) Kind() string { return "idem_operation" }

// Start starts an operation in tx, together with a job that River runs after the commit. It returns
// the ID of the operation. A Start with the key of an existing operation returns the ID of that
// operation.
func (d *Definition[In]) Start(ctx context.Context, client *river.Client[pgx.Tx], tx pgx.Tx, scope, key string, hash idem.Hash, in In, opts ...idem.Option) (id string, err error) {
	id, err = d.operation.Start(ctx, tx, scope, key, hash, in, opts...)
	if err != nil {
		return "", err
	}
	_, err = client.InsertTx(ctx, tx, Job{Operation: id, Name: d.name, Epoch: 1}, d.insertOpts())
	return id, err
}

// Do executes the operation in this process, as operation.Definition.Do does. If the process dies,
// River's workers resume the operation.
func (d *Definition[In]) Do(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash idem.Hash, in In, opts ...idem.Option) (idem.Result, error) {
	return d.operation.Do(ctx, pool, scope, key, hash, in, opts...)
}

// Resolve records the outcome of the call that has parked an operation of this definition, as
// operation.Definition.Resolve does.
func (d *Definition[In]) Resolve(ctx context.Context, pool *pgxpool.Pool, id string, finding operation.Finding, opts ...idem.Option) error {
	return d.operation.Resolve(ctx, pool, id, finding, opts...)
}

// Operation returns the definition in the type that operation.Child accepts. Watch inserts a job
// for the child operation.
func (d *Definition[In]) Operation() *operation.Definition[In] { return d.operation }

// Runnable is a Definition of any input type, for NewWorker.
type Runnable interface {
	definedName() string
	insertOpts() *river.InsertOpts
	resume(ctx context.Context, pool *pgxpool.Pool, id string, opts []idem.Option) error
}

func (d *Definition[In]) definedName() string { return d.name }

func (d *Definition[In]) insertOpts() *river.InsertOpts {
	opts := d.InsertOpts
	opts.UniqueOpts = river.UniqueOpts{ByArgs: true}
	return &opts
}

func (d *Definition[In]) resume(ctx context.Context, pool *pgxpool.Pool, id string, opts []idem.Option) error {
	return d.operation.Resume(ctx, pool, id, opts...)
}
