package inboxtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
)

// Suite configures Run.
type Suite struct {
	// Pool returns a pool on a database that has the schema of package migrations and that no other
	// test uses. Pool closes the pool in a Cleanup. The suite creates tables of its own there.
	Pool func(t testing.TB) *pgxpool.Pool

	// New returns an empty broker, or an empty part of one. It is called once for each rule, by
	// tests that run in parallel.
	New func(t testing.TB, pool *pgxpool.Pool) Source

	// Patience is how long the suite waits for an expected event before it fails. The default is a
	// minute.
	Patience time.Duration
}

// Handle is a handler: it makes the effect of a message on tx.
type Handle func(tx pgx.Tx, m inbox.Message) error

// Source is a broker and its consumer.
type Source struct {
	// Name is the name of the consumer in the inbox.
	Name string

	// Deliver sends messages to the broker. The consumer sets their Source.
	Deliver func(ctx context.Context, messages ...inbox.Message) error

	// Run runs a consumer until ctx ends. The suite calls it again after it has returned, as
	// another process would.
	Run func(ctx context.Context, handle Handle, options ...inbox.Option) error

	// Left returns how many messages of the broker are not acknowledged. While a consumer runs, it
	// need not count those that are delivered. It may be nil.
	Left func(ctx context.Context) (int, error)

	// Ordered reports whether the effects of a key are in the order in which its messages were
	// delivered.
	Ordered bool

	// Carried changes a message to what the handler gets, if the broker does not carry all fields.
	// A broker has to carry the ID and the Payload. Carried may be nil.
	Carried func(m *inbox.Message)
}

// Run checks each rule of the package in a subtest. The subtests run in parallel.
func Run(t *testing.T, s Suite) {
	t.Helper()
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.check(t, s)
		})
	}
}
