package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/idem-go/idem/internal/panics"
)

// ErrNoRoute is the reason of a message for whose topic Route has no Publisher.
var ErrNoRoute = errors.New("outbox: there is no route for the topic")

// Route returns a Publisher that passes each message to one of publishers, by its topic. The names
// are topics, or prefixes that end in *; the longest one that matches is used. Each Publisher is a
// destination of its own, or several if it is a Divider, so one that is slow or unavailable blocks
// no other. A message without a route fails with ErrNoRoute.
func Route(publishers map[string]Publisher) Divider {
	names := slices.SortedFunc(maps.Keys(publishers), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	return &routes{maps.Clone(publishers), names}
}

type routes struct {
	publishers map[string]Publisher
	names      []string // the longest first
}

// find returns the name of the route of a topic, "" if there is none.
func (r *routes) find(topic string) string {
	for _, name := range r.names {
		if matches(name, topic) {
			return name
		}
	}
	return ""
}

// Destination implements Divider.
func (r *routes) Destination(topic string) string {
	name := r.find(topic)
	if divider, ok := r.publishers[name].(Divider); ok {
		return name + " " + divider.Destination(topic)
	}
	return name
}

// KeepsOrder implements OrderKeeper. It reports whether all Publishers keep the order.
func (r *routes) KeepsOrder() bool {
	for _, publisher := range r.publishers {
		if !keepsOrder(publisher) {
			return false
		}
	}
	return true
}

// RunBeside implements companion for those Publishers that have a background task.
func (r *routes) RunBeside(ctx context.Context) {
	var tasks sync.WaitGroup
	for _, publisher := range r.publishers {
		if c, ok := publisher.(companion); ok {
			tasks.Go(func() {
				panics.Run(slog.Default(), "outbox: RunBeside of a Publisher", func() { c.RunBeside(ctx) })
			})
		}
	}
	tasks.Wait()
}

// Publish implements Publisher. A relay calls it with messages of one route, whose error is
// returned unchanged. Any other caller, such as a wrapper that is not a Divider, may pass messages
// of several. Then a route that returns an error without naming a message does not delay the others:
// Publish names all messages of that route with RetryLater. A panic of a route ends the call.
func (r *routes) Publish(ctx context.Context, messages []Message) error {
	parts := map[string][]Message{}
	for _, m := range messages {
		name := r.find(m.Topic)
		parts[name] = append(parts[name], m)
	}
	failed := map[string]error{}
	for name, part := range parts {
		err := r.publish(ctx, name, part)
		if len(parts) == 1 {
			return err
		}
		named, rest := splitError(err)
		if rest != nil {
			for _, m := range part {
				failed[m.ID] = RetryLater(rest, 0)
			}
		}
		if named != nil {
			maps.Copy(failed, named.Failed)
		}
	}
	if len(failed) > 0 {
		return &PublishError{Failed: failed}
	}
	return nil
}

func (r *routes) publish(ctx context.Context, name string, messages []Message) error {
	if publisher := r.publishers[name]; publisher != nil {
		return publisher.Publish(ctx, messages)
	}
	failed := map[string]error{}
	for _, m := range messages {
		failed[m.ID] = fmt.Errorf("%w %q", ErrNoRoute, m.Topic)
	}
	return &PublishError{Failed: failed}
}
