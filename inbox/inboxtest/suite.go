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
	// Pool returns a pool for a database that has the schema of package migrations, and that no other
	// test uses. Pool must close the pool in a Cleanup. The suite creates its own tables in the
	// database.
	Pool func(t testing.TB) *pgxpool.Pool

	// New returns the Source of an empty broker, or of an empty part of a broker. It is called once
	// for each rule, by tests that run in parallel.
	New func(t testing.TB, pool *pgxpool.Pool) Source

	// Patience is how long the suite waits for an expected event before it fails. The default is a
	// minute.
	Patience time.Duration
}

// Handle is a handler: it makes the effect of a message in the transaction tx.
type Handle func(tx pgx.Tx, m inbox.Message) error

// Source is a broker and its consumer.
type Source struct {
	// Name is the name of the consumer in the inbox.
	Name string

	// Deliver sends messages to the broker. Their Source is empty, because the consumer sets it.
	Deliver func(ctx context.Context, messages ...inbox.Message) error

	// Run runs a consumer until ctx ends. After it has returned, the suite calls it again, as if
	// another process continued.
	Run func(ctx context.Context, handle Handle, options ...inbox.Option) error

	// Left returns how many messages in the broker are not acknowledged. While a consumer runs,
	// messages that were delivered to it need not be counted. Left may be nil.
	Left func(ctx context.Context) (int, error)

	// Ordered is true if the effects of a key are in the order in which its messages were delivered.
	Ordered bool

	// Carried changes a message to the message that the handler receives, if the broker does not carry
	// all fields. A broker has to carry the ID and the Payload. Carried may be nil.
	Carried func(m *inbox.Message)
}

// Run checks each rule of the suite in a subtest. The subtests run in parallel.
func Run(t *testing.T, s Suite) {
	t.Helper()
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.check(t, s)
		})
	}
}
