package idemriver

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// Definition is a kind of operation whose work is done by River's workers.
type Definition[In any] struct {
	// InsertOpts are those of its jobs: queue, priority, tags, attempts. UniqueOpts are set by this package.
	InsertOpts river.InsertOpts

	name      string
	operation *operation.Definition[In]
}

// Define names a function whose steps are remembered, as operation.Define does, with the same options.
func Define[In any](name string, fn func(op *operation.Op, in In) (idem.Response, error), opts ...operation.Option) *Definition[In] {
	return &Definition[In]{name: name, operation: operation.Define(name, fn, opts...)}
}

// Start makes the operation part of tx, together with a job that River begins to work on when tx is committed. What it returns is
// the id of the operation. Start with the same key again returns the id that it has already.
func (d *Definition[In]) Start(ctx context.Context, client *river.Client[pgx.Tx], tx pgx.Tx, scope, key string, hash idem.Hash, in In, opts ...idem.Option) (id string, err error) {
	id, err = d.operation.Start(ctx, tx, scope, key, hash, in, opts...)
	if err != nil {
		return "", err
	}
	_, err = client.InsertTx(ctx, tx, Job{Operation: id, Name: d.name, Epoch: 1}, d.insertOpts())
	return id, err
}

// Do executes the operation in this process, as the Do of package operation. River's workers go on with it if it is left.
func (d *Definition[In]) Do(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash idem.Hash, in In, opts ...idem.Option) (idem.Result, error) {
	return d.operation.Do(ctx, pool, scope, key, hash, in, opts...)
}

// Resolve says the outcome of the call that has parked an operation of this definition, as the Resolve of package operation.
func (d *Definition[In]) Resolve(ctx context.Context, pool *pgxpool.Pool, id string, finding operation.Finding, opts ...idem.Option) error {
	return d.operation.Resolve(ctx, pool, id, finding, opts...)
}

// Operation returns the definition as package operation has it, for operation.Child. The child has no job at first: Watch makes one.
func (d *Definition[In]) Operation() *operation.Definition[In] { return d.operation }

// Runnable is a Definition, for a Worker.
type Runnable interface {
	defined() (name string)
	insertOpts() *river.InsertOpts
	resume(ctx context.Context, pool *pgxpool.Pool, id string, opts []idem.Option) error
}

func (d *Definition[In]) defined() string { return d.name }

func (d *Definition[In]) insertOpts() *river.InsertOpts {
	opts := d.InsertOpts
	opts.UniqueOpts = river.UniqueOpts{ByArgs: true}
	return &opts
}

func (d *Definition[In]) resume(ctx context.Context, pool *pgxpool.Pool, id string, opts []idem.Option) error {
	return d.operation.Resume(ctx, pool, id, opts...)
}
