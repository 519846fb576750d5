// Package contestant holds the ways to make a write on Postgres safe to repeat that the benchmark
// compares, each in a file of its own with a note of what it promises. All of them execute the same
// statements and return the same response, over pools that are configured alike.
package contestant

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Call is one request: the same key means the same request.
type Call struct {
	Key      string // a UUID in its 36 characters
	Business Business
	Body     []byte // of the response, a JSON document
	Hold     func() // called inside the transaction, after its statements; nil: nothing is called
}

// Answer is what the caller of a contestant gets.
type Answer struct {
	Body     []byte
	Replayed bool
	Refused  bool // another call holds the key, and this one did not wait for it
}

// Runner is a contestant at work on one database.
type Runner interface {
	Do(ctx context.Context, call Call) (Answer, error)
	Close()
}

// Place is where a contestant works. The database is its own, and has the schemas of the business
// and of idem.
type Place struct {
	Pool  *pgxpool.Pool
	Redis func(fsync string) (Redis, error) // a server of its own for each value of appendfsync
}

// Contestant is one way to make a write safe to repeat.
type Contestant struct {
	Name       string
	Tables     []string // that hold its records; none: not in Postgres
	Listens    bool     // holds connections of its own beside those of its calls
	Repeats    bool     // executes a duplicate again, by design or by mistake
	Recordless bool     // keeps no record of a request
	Forgets    bool     // keeps a record, and not the response
	Open       func(ctx context.Context, place Place) (Runner, error)
}

// All returns the contestants in the order of the report. The first is the base of first runs.
func All() []Contestant {
	return []Contestant{
		Plain(), Pipelined(), Idem(), IdemBatch(), Textbook(), SelectInsert(), Phases(), DBOS(), River(), Fiber(),
		RedisAlways(), RedisEverySecond(),
	}
}

// pooled is what contestants have in common that keep nothing but their pool.
type pooled struct{ pool *pgxpool.Pool }

func (pooled) Close() {}

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
