// Package contestant contains the compared ways to make a write on Postgres safe to repeat. Each
// contestant is in its own file, with a note on its guarantees. All contestants execute the same
// statements and return the same response. Their pools have the same settings.
package contestant

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Call is one call of a client. Calls with the same key are attempts of the same request.
type Call struct {
	Key      string // a UUID of 36 characters
	Business Business
	Body     []byte // body of the response, a JSON document
	Hold     func() // if not nil, called in the transaction after its statements, to keep the call in progress
}

// Answer is the result of a call.
type Answer struct {
	Body     []byte
	Replayed bool
	Refused  bool // another call with the key was in progress, and this call did not wait for it
}

// Do executes a call, or replays the response that is recorded for its key.
type Do func(ctx context.Context, call Call) (Answer, error)

// Place is the environment of a contestant. No other contestant uses its database. The database has
// the schemas of the business and of idem.
type Place struct {
	Pool    *pgxpool.Pool
	Redis   func(fsync string) (Redis, error) // returns a server with this value of the setting appendfsync
	Cleanup func(func())                      // registers a function that stops the contestant
}

// Contestant is one way to make a write safe to repeat.
type Contestant struct {
	Name       string
	Schema     string   // SQL that creates the contestant's own tables
	Tables     []string // tables with the contestant's records; empty if they are not in Postgres
	Listens    bool     // needs connections in addition to one for each call
	Repeats    bool     // may execute a duplicate again, by design or by mistake
	Recordless bool     // does not record requests, so it cannot recognize duplicates
	Open       func(ctx context.Context, place Place) (Do, error)
}

// All lists the contestants in the order of the report. The first contestant is the base: the
// report compares the others with it in calls with new keys.
var All = []Contestant{Plain, Pipelined, Idem, IdemBatch, Textbook, SelectInsert, DBOS, RedisAlways, RedisEverySecond}

// pooled returns an Open function for a contestant whose calls need only a pool.
func pooled(do func(ctx context.Context, pool *pgxpool.Pool, call Call) (Answer, error)) func(context.Context, Place) (Do, error) {
	return func(_ context.Context, place Place) (Do, error) {
		return func(ctx context.Context, call Call) (Answer, error) { return do(ctx, place.Pool, call) }, nil
	}
}

// Execute sends the statements of the call's business one by one, as most code does.
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
