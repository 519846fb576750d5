package outboxtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/outbox"
)

// Suite says how to make what is tested.
type Suite struct {
	// Pool returns a pool on a database that has the schema of package migrations and an empty outbox, and that no other test
	// uses. It closes the pool in a Cleanup.
	Pool func(t testing.TB) *pgxpool.Pool

	// New returns a Publisher with a destination that is empty and its own. It is called several times for each promise, from
	// tests that run in parallel.
	New func(t testing.TB) Target

	// Patience is how long the suite waits for what has to come, before it fails. The default is a minute.
	Patience time.Duration
}

// Target is a Publisher and where its messages go.
type Target struct {
	Publisher outbox.Publisher

	// Topic is that of the messages that Arrived returns.
	Topic string

	// Arrived returns the messages of the Topic that it has not returned before, in the order in which a consumer is given them, and
	// waits for none. After an error it is called again.
	Arrived func(ctx context.Context) ([]outbox.Message, error)

	// Carried changes a message to what arrives of it, where that is not all: a webhook has no Key. The ID and the Payload always
	// arrive. Arrived need not return the Topic.
	Carried func(m *outbox.Message)

	// Unordered says that the destination promises no order of a key.
	Unordered bool

	// MaxPayload is the size of the largest payload that arrives, in bytes. The default is 256 KiB.
	MaxPayload int

	// Bad makes of a message one that can never be published, in each way that there is: it is too large, its topic does not exist,
	// a function of the user's panics at it.
	Bad map[string]func(m *outbox.Message)

	// Away makes the destination unreachable, in each way that there is: it is stopped, it hangs, it is full. What it returns
	// brings the destination back with all that it had, and is nil if there is no way back. Each is called once for a Target.
	Away map[string]func() (back func())
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
	{"MessageArrivesOnceWithAllThatItHas", arrivesOnce},
	{"AsManyMessagesAsARelayGivesInOneCallArrive", manyArrive},
	{"MessageThatIsPublishedAgainIsTheSame", arrivesAgain},
	{"CallsSideBySideDoNotDisturbEachOther", sideBySide},
	{"MessagesOfAKeyArriveInOrder", inOrder},
	{"OrderKeeperPublishesNothingBehindAMessageThatHasFailed", nothingBehind},
	{"MessageThatCannotBePublishedIsNamedAlone", namedAlone},
	{"MessageThatCannotBePublishedIsADeadLetterAndTheOthersArrive", deadAlone},
	{"DestinationThatIsAwayBlamesNoMessage", awayBlamesNone},
	{"MessagesOutliveADestinationThatIsAway", outlivesAway},
	{"EndOfTheContextEndsPublish", endsWithContext},
	{"WhatIsStrangeArrivesAsItIsOrIsRefused", strangeIsExact},
}
