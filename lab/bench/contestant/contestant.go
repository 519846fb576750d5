// Package contestant holds the ways to make a write on Postgres safe to repeat that the benchmark compares, each in a file
// of its own with a note of what it promises. All of them execute the same business statements and give the same
// response, over a pool that is configured alike.
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
	Hold     func() // called inside the transaction when its statements are done; nil: nothing is
}

// Answer is what the caller of a contestant gets.
type Answer struct {
	Body     []byte
	Replayed bool
	Refused  bool // another call holds the key, and this one was not made to wait for it
}

// Runner is a contestant at work on one database.
type Runner interface {
	Do(ctx context.Context, call Call) (Answer, error)
	Close()
}

// Place is where a contestant works. The database is its own, and has the schemas of the business and of idem.
type Place struct {
	Pool  *pgxpool.Pool
	Redis func(fsync string) (Redis, error) // a server of its own for each value of appendfsync
}

// Contestant is one way to do it.
type Contestant struct {
	Name       string
	Guarantees Guarantees
	Tables     []string // where it keeps its records; none: not in Postgres
	Listens    bool     // holds connections of its own beside those of its calls
	Durable    int      // how often a first run waits for a disk, at least
	Repeats    bool     // executes a duplicate again, by design or by mistake
	Recordless bool     // keeps no record of a request
	Forgets    bool     // keeps a record, and not the response
	Open       func(ctx context.Context, place Place) (Runner, error)
}

// Guarantees are answers to what one would ask before choosing: "yes", "no", "-" where the question does not arise, or a
// few words.
type Guarantees struct {
	Atomic  string // is the record there if and only if the effect is?
	Free    string // is the key free at once when the process has died?
	Replays string // does a duplicate get the response?
	Checks  string // is the same key with another payload refused?
}

// All lists the contestants in the order of the report. The first is the measure of the others.
func All() []Contestant {
	return []Contestant{
		Plain(), Pipelined(), Idem(), IdemBatch(), Textbook(), SelectInsert(), Phases(), DBOS(), River(), Fiber(),
		RedisAlways(), RedisEverySecond(),
	}
}

// pooled is what is common to contestants that keep nothing but their pool.
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
