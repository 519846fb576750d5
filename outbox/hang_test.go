package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/idem-go/idem/outbox"
)

// hanging is a Publisher with a destination for which it does not return before the test says so.
type hanging struct {
	divided
	hangs, goOn chan struct{}
}

func newHanging(b *broker) *hanging {
	h := &hanging{hangs: make(chan struct{}, 10), goOn: make(chan struct{})}
	h.divided = divided{func(ctx context.Context, messages []outbox.Message) error {
		if messages[0].Topic == "hangs" {
			h.hangs <- struct{}{}
			<-h.goOn
		}
		return b.Publish(ctx, messages)
	}}
	return h
}

// TestRelay_DoesNotAwaitADestinationThatHangs: not when the topics of another relay change, not when its session is lost, and not at its end.
func TestRelay_DoesNotAwaitADestinationThatHangs(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	b, other := &broker{}, &broker{}
	h := newHanging(b)
	config := swift()
	config.PublishTimeout, config.Drain = time.Hour, time.Hour // a relay that waits would do so for longer than the test
	_, stop := o.relay(h, config)
	o.add(to("hangs", "k", "1"))
	await(t, "the call", h.hangs)

	o.relay(other, named("other", "theirs"))
	eventually(t, "the other relay to have its topic", func() bool { return o.count(`select count(*) from idem.relays where relay = 'other'`) == 16 })
	o.add(to("theirs", "k", "2"), to("fine", "k", "3"))
	eventually(t, "messages of both relays, after a change of topics", func() bool { return other.number() == 1 && b.number() == 1 })

	o.exec(`select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'idem relay' and datname = current_database()`)
	o.add(to("fine", "k", "4"), to("hangs", "k", "5"))
	eventually(t, "a message behind a lost session", func() bool { return b.number() == 2 })

	slow := make(chan struct{})
	b.mu.Lock()
	b.refuse = func(*outbox.Message) error { close(slow); return nil }
	b.mu.Unlock()
	o.add(to("fine", "k", "6"))
	await(t, "the last message", slow)
	ended := make(chan struct{})
	go func() { stop(); close(ended) }()
	eventually(t, "the last message to be removed, although the relay has yet to end", func() bool { return o.waiting() == 2 })
	b.mu.Lock()
	b.refuse = nil
	b.mu.Unlock()
	close(h.goOn)
	await(t, "the end", ended)
	if n := len(h.hangs); n > 0 {
		t.Errorf("there were %d calls more beside the one that hangs", n)
	}
}
