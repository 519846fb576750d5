package idemriver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

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
	operation *operation.Definition[input[In]]
}

// Define names a function whose steps are remembered, as operation.Define does.
func Define[In any](name string, fn func(op *operation.Op, in In) (idem.Response, error)) *Definition[In] {
	d := &Definition[In]{name: name}
	if fn == nil {
		d.operation = operation.Define[input[In]](name, nil)
		return d
	}
	d.operation = operation.Define(name, func(op *operation.Op, in input[In]) (idem.Response, error) {
		if id, ok := op.Context().Value(resumed{}).(string); ok && id != op.ID() || in.value == nil {
			return idem.Response{}, errEnded
		}
		return fn(op, *in.value)
	})
	return d
}

// Start makes the operation part of tx, together with a job that River begins to work on when tx is committed. What it returns is
// the id of the operation. Start with the same key again returns the id that it has already.
func (d *Definition[In]) Start(ctx context.Context, client *river.Client[pgx.Tx], tx pgx.Tx, scope, key string, hash idem.Hash, in In, opts ...idem.Option) (id string, err error) {
	id, err = d.operation.Start(ctx, tx, scope, key, hash, input[In]{&in}, opts...)
	if err != nil {
		return "", err
	}
	_, err = client.InsertTx(ctx, tx, Job{Operation: id, Name: d.name, Epoch: 1}, d.insertOpts())
	return id, err
}

// Do executes the operation in this process, as the Do of package operation. River's workers go on with it if it is left.
func (d *Definition[In]) Do(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash idem.Hash, in In, opts ...idem.Option) (idem.Result, error) {
	return d.operation.Do(ctx, pool, scope, key, hash, input[In]{&in}, opts...)
}

// Runnable is a Definition, for a Worker.
type Runnable interface {
	defined() (name string)
	insertOpts() *river.InsertOpts
	resume(ctx context.Context, pool *pgxpool.Pool, o *found, opts []idem.Option) error
}

func (d *Definition[In]) defined() string { return d.name }

func (d *Definition[In]) insertOpts() *river.InsertOpts {
	opts := d.InsertOpts
	opts.UniqueOpts = river.UniqueOpts{ByArgs: true}
	return &opts
}

// resumed is the key of a context that is for one operation alone.
type resumed struct{}

// errEnded says that an operation that was to be gone on with has ended meanwhile, and its key is new again. Nothing is begun.
var errEnded = errors.New("idemriver: the operation has ended")

// resume goes on with an operation that is on record. It begins none.
func (d *Definition[In]) resume(ctx context.Context, pool *pgxpool.Pool, o *found, opts []idem.Option) error {
	ctx = context.WithValue(ctx, resumed{}, o.id)
	_, err := d.operation.Do(ctx, pool, o.scope, o.key, o.hash, input[In]{}, append(opts[:len(opts):len(opts)], idem.WithWait(0))...)
	return err
}

// input is stored as In is. Without a value it goes with a call that resumes, of which the stored one counts.
type input[In any] struct{ value *In }

func (i input[In]) MarshalJSON() ([]byte, error) {
	if i.value == nil {
		return []byte("null"), nil
	}
	return json.Marshal(*i.value)
}

func (i *input[In]) UnmarshalJSON(stored []byte) error {
	if i.value = new(In); bytes.Equal(stored, []byte("null")) {
		return nil
	}
	return json.Unmarshal(stored, i.value)
}
