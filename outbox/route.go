package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/idem-go/idem/internal/panics"
)

// ErrNoRoute says of a message that there is no Publisher for its topic.
var ErrNoRoute = errors.New("outbox: there is no route for the topic")

// Route returns a Publisher that gives each message to one of several, by its topic. The names are topics, or beginnings of topics
// that end in *; the longest one that fits counts. Each is a destination of its own, or several if it is a Divider: one that is
// slow or away holds up no other. A message that none fits fails with ErrNoRoute.
func Route(publishers map[string]Publisher) Divider {
	names := slices.SortedFunc(maps.Keys(publishers), func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return slices.Compare([]byte(a), []byte(b))
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

// KeepsOrder implements OrderKeeper, if all of them do.
func (r *routes) KeepsOrder() bool {
	for _, publisher := range r.publishers {
		if !keepsOrder(publisher) {
			return false
		}
	}
	return true
}

// RunBeside calls that of the Publishers that have one.
func (r *routes) RunBeside(ctx context.Context) {
	var beside sync.WaitGroup
	for _, publisher := range r.publishers {
		if companion, ok := publisher.(companion); ok {
			beside.Go(func() {
				panics.Run(slog.Default(), "outbox: RunBeside of a Publisher", func() { companion.RunBeside(ctx) })
			})
		}
	}
	beside.Wait()
}

// Publish implements Publisher. A relay calls it for one route at a time.
func (r *routes) Publish(ctx context.Context, messages []Message) error {
	parts := map[string][]Message{}
	for _, m := range messages {
		name := r.find(m.Topic)
		parts[name] = append(parts[name], m)
	}
	if len(parts) == 1 {
		for name, part := range parts {
			return r.publish(ctx, name, part)
		}
	}
	failed := map[string]error{}
	for name, part := range parts {
		route := PublisherFunc(func(ctx context.Context, part []Message) error { return r.publish(ctx, name, part) })
		named, rest := namedIn(publishSafely(ctx, route, part))
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
