package outbox_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/idem-go/idem/outbox"
)

// vault is a Divider with a destination for each topic. Its calls block until open is closed,
// except those of the topic "quick". It counts the bytes of its calls in progress.
type vault struct {
	broker
	open chan struct{} // closed to continue

	mu         sync.Mutex
	held, most int // bytes
	calls      int // in progress
}

func (*vault) Destination(topic string) string { return topic }

func (v *vault) Publish(ctx context.Context, messages []outbox.Message) error {
	octets := 0
	for _, m := range messages {
		octets += len(m.Payload)
		for _, header := range m.Headers {
			octets += len(header)
		}
	}
	v.hold(octets, 1)
	if messages[0].Topic != "quick" {
		<-v.open
	}
	v.hold(-octets, -1)
	return v.broker.Publish(ctx, messages)
}

func (v *vault) hold(octets, calls int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.held += octets
	v.calls += calls
	v.most = max(v.most, v.held)
}

func (v *vault) seen() (calls, most int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.calls, v.most
}

// Many destinations are slow, and each has messages of half a megabyte. Another destination
// continues.
func TestMaxInHand_BoundsMemory(t *testing.T) {
	t.Parallel()
	const destinations, each, large, limit = 24, 3, 256 << 10, 2 << 20
	o, v := newDatabase(t), &vault{open: make(chan struct{})}
	var all []outbox.Message
	for i := range each {
		for to := range destinations { // the headers count as well
			all = append(all, outbox.Message{Topic: fmt.Sprint("slow ", to), Key: "k", Type: fmt.Sprint(i), Payload: make([]byte, large-60_000),
				Headers: map[string]string{"h": strings.Repeat("x", 60_000)}})
		}
	}
	o.add(all...)
	config := swift()
	config.MaxInHand, config.Streams = limit, 4
	o.relay(v, config)
	eventually(t, "some calls to be in progress", func() bool { calls, _ := v.seen(); return calls >= 3 })
	for i := range 20 {
		o.add(outbox.Message{Topic: "quick", Key: "k", Type: fmt.Sprint(i), Payload: bytes.Repeat([]byte("x"), 1000)})
		eventually(t, "a message of another destination", func() bool { return v.number() > i })
	}
	close(v.open)
	o.empty()
	if _, most := v.seen(); most > limit+large || most < limit/2 {
		t.Errorf("%d bytes were in memory", most)
	}
	for to := range destinations {
		var got []string
		for _, m := range v.all() {
			if m.Topic == fmt.Sprint("slow ", to) {
				got = append(got, m.Type)
			}
		}
		if len(got) != each || !slices.IsSorted(got) {
			t.Errorf("of destination %d came %v", to, got)
		}
	}
}

func TestMaxInHand_AllowsOneLargerMessage(t *testing.T) {
	t.Parallel()
	o, v := newDatabase(t), &vault{open: make(chan struct{})}
	for i := range 10 {
		o.add(outbox.Message{Topic: fmt.Sprint(i % 5), Key: "k", Type: fmt.Sprint(i), Payload: make([]byte, 1<<20)})
	}
	config := swift()
	config.MaxInHand = 1
	o.relay(v, config)
	eventually(t, "a call", func() bool { calls, _ := v.seen(); return calls > 0 })
	close(v.open)
	o.empty()
	if _, most := v.seen(); most > 1<<20 {
		t.Errorf("%d bytes were in memory", most)
	}
}
