package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem/outbox"
)

var errLost = errors.New("outboxtest: the acknowledgement is lost")

// lossy is a Publisher that fails some calls before it publishes, and other calls after it has
// published.
type lossy struct {
	outbox.Publisher
	calls atomic.Int64
}

func (l *lossy) Publish(ctx context.Context, messages []outbox.Message) error {
	n := l.calls.Add(1)
	if n%7 == 3 {
		return errLost
	}
	err := l.Publisher.Publish(ctx, messages)
	if n%5 == 2 {
		return errors.Join(errLost, ctx.Err())
	}
	return err
}

// KeepsOrder reports whether the wrapped Publisher keeps the order.
func (l *lossy) KeepsOrder() bool {
	keeper, ok := l.Publisher.(outbox.OrderKeeper)
	return ok && keeper.KeepsOrder()
}

// lossyDivider is a lossy Publisher that is also a Divider.
type lossyDivider struct {
	*lossy
	divider outbox.Divider
}

func (l lossyDivider) Destination(topic string) string { return l.divider.Destination(topic) }

func newLossy(p outbox.Publisher) outbox.Publisher {
	l := &lossy{Publisher: p}
	if divider, ok := p.(outbox.Divider); ok {
		return lossyDivider{l, divider}
	}
	return l
}

// inOrder adds messages of several keys while a relay runs. One message of each key can never be
// published.
func inOrder(t testing.TB, s Suite) {
	const keys, each = 4, 40
	a := s.open(t)
	if a.Unordered {
		return
	}
	o := a.database(s.Pool(t))
	stop := o.relay(newLossy(a.Publisher), outbox.RelayConfig{MaxAttempts: 30}) // so many that lost acknowledgments dead-letter no message
	defer stop()
	sent, ways := make([][]outbox.Message, keys), slices.Sorted(maps.Keys(a.Bad))
	var good []outbox.Message
	for i := range each {
		var together []outbox.Message
		for k := range keys {
			m := a.message(fmt.Sprint("key ", k))
			if i == each/2 && len(ways) > 0 {
				a.Bad[ways[k%len(ways)]](&m)
			} else {
				sent[k], good = append(sent[k], m), append(good, m)
			}
			together = append(together, m)
		}
		o.add(together...)
	}
	a.await(good...)
	o.awaitEmpty()
	for _, of := range sent {
		a.firstInOrder(of)
	}
}

// firstInOrder fails the test unless the first arrivals of the messages are in the order in which
// the messages were added.
func (a *arrivals) firstInOrder(messages []outbox.Message) {
	a.t.Helper()
	first := map[string]int{}
	for i, m := range slices.Backward(a.all) {
		first[m.ID] = i
	}
	for i := 1; i < len(messages); i++ {
		if first[messages[i].ID] < first[messages[i-1].ID] {
			a.t.Fatalf("message %d of the key %q has arrived before message %d", i, messages[i].Key, i-1)
		}
	}
}
