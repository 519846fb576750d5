// Package contestant contains the compared ways to make a write on Postgres safe to repeat. Each is
// in its own file, with a note on its guarantees. All of them execute the same statements and
// return the same response, over pools with the same settings.
package contestant

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Call is one request. Calls with the same key are the same request.
type Call struct {
	Key      string // a UUID of 36 characters
	Business Business
	Body     []byte // body of the response, a JSON document
	Hold     func() // called in the transaction after its statements, if not nil
}

// Answer is the result of a call.
type Answer struct {
	Body     []byte
	Replayed bool
	Refused  bool // another call holds the key, and this one did not wait for it
}

// Do makes a call.
type Do func(ctx context.Context, call Call) (Answer, error)

// Place is the environment of a contestant. The database is used by no other contestant and has the
// schemas of the business and of idem.
type Place struct {
	Pool    *pgxpool.Pool
	Redis   func(fsync string) (Redis, error) // returns a server for a value of appendfsync
	Cleanup func(func())                      // registers a function that ends the contestant
}

// Contestant is one way to make a write safe to repeat.
type Contestant struct {
	Name       string
	Schema     string   // SQL that creates its own tables
	Tables     []string // tables with its records; empty if not in Postgres
	Listens    bool     // needs connections beside those of its calls
	Repeats    bool     // may execute a duplicate again, by design or by mistake
	Recordless bool     // records no requests
	Open       func(ctx context.Context, place Place) (Do, error)
}

// All lists the contestants in the order of the report. The first is the base of first runs.
var All = []Contestant{Plain, Pipelined, Idem, IdemBatch, Textbook, SelectInsert, DBOS, RedisAlways, RedisEverySecond}

// pooled returns the Open of a contestant that needs only a pool.
func pooled(do func(ctx context.Context, pool *pgxpool.Pool, call Call) (Answer, error)) func(context.Context, Place) (Do, error) {
	return func(_ context.Context, place Place) (Do, error) {
		return func(ctx context.Context, call Call) (Answer, error) { return do(ctx, place.Pool, call) }, nil
	}
}

// Execute sends the statements of the business one by one, as most code does.
func (c Call) Execute(ctx context.Context, tx pgx.Tx) error {
	for _, s := range c.Business(c.Key) {
		if _, err := tx.Exec(ctx, s.SQL, s.Args...); err != nil {
			return err
		}
	}
	c.hold()
	return nil
}

func (c Call) hold() {
	if c.Hold != nil {
		c.Hold()
	}
}
