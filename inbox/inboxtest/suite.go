package inboxtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
)

// Suite says how to make what is tested.
type Suite struct {
	// Pool returns a pool on a database that has the schema of package migrations, and that no other test uses. It closes the pool in
	// a Cleanup. The suite makes tables of its own in it.
	Pool func(t testing.TB) *pgxpool.Pool

	// New returns a broker, or a part of one, that is empty. It is called for each promise, from tests that run in parallel.
	New func(t testing.TB, pool *pgxpool.Pool) Source

	// Patience is how long the suite waits for what has to come, before it fails. The default is a minute.
	Patience time.Duration
}

// Handle has the effect of a message, in tx.
type Handle func(tx pgx.Tx, m inbox.Message) error

// Source is a broker and its consumer.
type Source struct {
	// Name is that of the consumer in the inbox.
	Name string

	// Deliver gives messages to the broker. Their Source is up to the consumer.
	Deliver func(ctx context.Context, messages ...inbox.Message) error

	// Run runs a consumer until ctx ends. It is called again when it has returned: as another process.
	Run func(ctx context.Context, handle Handle, options ...inbox.Option) error

	// Left is how many messages the broker has that are not acknowledged. While a consumer runs it may leave out those that are
	// delivered. It may be nil.
	Left func(ctx context.Context) (int, error)

	// Ordered says that the effects of a key have the order in which its messages were delivered.
	Ordered bool

	// Carried changes a message to what the handler is given of it, where that is not all. The ID and the Payload always are.
	Carried func(m *inbox.Message)
}

// Run asks all that the package promises, each in a subtest that runs in parallel.
func Run(t *testing.T, s Suite) {
	t.Helper()
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.check(t, s)
		})
	}
}

// rule is a promise, and what asks it.
type rule struct {
	name  string
	check func(t testing.TB, s Suite)
}

var rules = []rule{
	{"MessageHasItsEffectOnceHoweverOftenItIsDelivered", effectOnce},
	{"ConsumerThatIsStoppedInTheMiddleLosesAndDoublesNothing", stopped},
	{"MessageIsAcknowledgedAfterItsCommit", afterCommit},
	{"MessageThatFailsIsTriedAgain", triedAgain},
	{"PoisonIsADeadLetterAndTheOthersHaveTheirEffects", poison},
	{"DeadLetterThatIsRedrivenIsHandled", redriven},
	{"EffectsOfAKeyHaveItsOrder", inOrder},
}
