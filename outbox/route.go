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

// ErrNoRoute is the reason in a PublishError for a message whose topic has no Publisher in Route.
var ErrNoRoute = errors.New("outbox: there is no route for the topic")

// Route returns a Publisher that passes each message to one of publishers, by its topic. The keys
// of the map are topics, or prefixes followed by *; the longest key that matches the topic is used.
// Each Publisher is a destination of its own, or several if it is a Divider. So a slow or
// unavailable Publisher blocks no other. A message without a route fails with ErrNoRoute.
func Route(publishers map[string]Publisher) Divider {
	names := slices.SortedFunc(maps.Keys(publishers), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	return &routes{maps.Clone(publishers), names}
}

type routes struct {
	publishers map[string]Publisher
	names      []string // the longest name first
}

// find returns the name of the route of a topic, or "" if there is none.
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

// RunBeside implements companion. It runs the background tasks of those Publishers that have one.
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

// Publish implements Publisher. A relay calls it with messages of one route, and Publish returns
// the error of that route unchanged. Any other caller, such as a wrapper that is not a Divider, may
// pass messages of several routes. If one route then returns an error that names no message,
// Publish names all messages of this route and marks their reason with RetryLater. So the error
// does not delay the other routes. A panic of a route ends the call.
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
