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
	// Pool returns a pool for a database with the schema of package migrations and an empty outbox,
	// which no other test uses. It closes the pool in a Cleanup.
	Pool func(t testing.TB) *pgxpool.Pool

	// New returns a Publisher with an empty destination of its own. Each check calls it several
	// times, and checks run in parallel.
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

	// Arrived returns the messages of the Topic that it has not returned before, in the order in
	// which a consumer receives them. It does not wait for messages. After an error it is called
	// again.
	Arrived func(ctx context.Context) ([]outbox.Message, error)

	// Carried removes the parts of a message that do not arrive: a webhook has no Key, for example.
	// The ID and the Payload must arrive. Arrived need not return the Topic.
	Carried func(m *outbox.Message)

	// Unordered says that the destination does not keep the order of a key.
	Unordered bool

	// MaxPayload is the size of the largest payload that the destination accepts, in bytes. The
	// default is 256 KiB.
	MaxPayload int

	// Bad has functions that change a message so that it can never be published, by the name of the
	// cause: the message is too large, its topic does not exist, a function of the application
	// panics for it.
	Bad map[string]func(m *outbox.Message)

	// Away has functions that make the destination unavailable, by the name of the cause: it is
	// stopped, it hangs, it is full. The function that they return makes the destination available
	// again, with all its messages. It is nil if that is impossible. Each function is called once
	// for a Target.
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
