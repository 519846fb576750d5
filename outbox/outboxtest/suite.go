package outboxtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/outbox"
)

// Suite configures the suite.
type Suite struct {
	// Pool returns a pool for a database that has the schema of package migrations and an empty
	// outbox, and that no other test uses. Pool must close the pool in a Cleanup.
	Pool func(t testing.TB) *pgxpool.Pool

	// New returns a Publisher with a separate, empty destination. Each check calls New several times,
	// and checks run in parallel.
	New func(t testing.TB) Target

	// Patience is how long the suite waits for an expected event before it fails. The default is a
	// minute.
	Patience time.Duration
}

// Target is a Publisher with its destination.
type Target struct {
	Publisher outbox.Publisher

	// Topic is the topic of the messages that Arrived returns.
	Topic string

	// Arrived returns messages of the Topic that an earlier call of Arrived has not returned, in the
	// order in which a consumer receives them. It does not wait for messages. If it returns an error,
	// the suite calls it again.
	Arrived func(ctx context.Context) ([]outbox.Message, error)

	// Carried removes the parts of a message that the destination does not carry: a webhook has no
	// Key, for example. The ID and the Payload must arrive. Messages from Arrived need not have their
	// Topic.
	Carried func(m *outbox.Message)

	// Unordered says that the destination does not keep the order of a key.
	Unordered bool

	// MaxPayload is the size of the largest payload that the destination accepts, in bytes. The
	// default is 256 KiB.
	MaxPayload int

	// Bad contains functions that change a message so that it can never be published. The keys name
	// the cause: the message is too large, its topic does not exist, or a function of the application
	// panics for it.
	Bad map[string]func(m *outbox.Message)

	// Away contains functions that make the destination unavailable. The keys name the cause: the
	// destination is stopped, hangs, or is full. Each function returns a function that makes the
	// destination available again, with all its messages, or nil if that is impossible. The suite
	// calls each function of a Target at most once.
	Away map[string]func() (back func())
}

// Run runs all checks, each in a parallel subtest.
func Run(t *testing.T, s Suite) {
	t.Helper()
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.check(t, s)
		})
	}
}

// rule is a promise of Publisher and its check.
type rule struct {
	name  string
	check func(t testing.TB, s Suite)
}

var rules = []rule{
	{"ArrivesOnceAndUnchanged", arrivesOnce},
	{"FullBatchArrives", manyArrive},
	{"RepeatedMessageIsUnchanged", isRepeatable},
	{"ConcurrentCalls", concurrentCalls},
	{"OrderOfAKey", inOrder},
	{"OrderKeeperHoldsMessagesAfterAFailedOne", holdsAfterFailure},
	{"NamesOnlyTheFailingMessage", namesFailing},
	{"DeadLettersOnlyTheFailingMessage", deadLettersFailing},
	{"OutageCountsNoAttempt", outageCountsNothing},
	{"RelaySurvivesAnOutage", relaySurvivesOutage},
	{"ReturnsAtTheEndOfTheContext", endsWithContext},
	{"UnusualContents", unusualContents},
}
