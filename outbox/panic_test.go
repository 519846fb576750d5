package outbox_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem/outbox"
)

// No error names the message. The others are published. The value of the panic may contain data of
// the message, so its type is stored.
func TestPanic_FailsOneMessage(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{before: func(messages []outbox.Message) error {
		for _, m := range messages {
			if m.Type == "bad" {
				panic(secretive{string(m.Payload)})
			}
		}
		return nil
	}}
	config := swift()
	config.MaxAttempts = 2
	o.add(append(withBad(5), message("bad", "behind"))...)
	o.relay(b, config)
	o.empty()
	if n := o.count(`select count(*) from idem.dead_letters where class = 'panic' and attempts = 2 and type = 'bad'`); n != 1 || b.number() != 6 {
		t.Errorf("%d dead letters, %d messages were published", n, b.number())
	}
	reason := o.text(`select reason from idem.dead_letters where class = 'panic'`)
	if strings.Contains(reason, "of bad") || !strings.Contains(reason, "outbox_test.secretive") {
		t.Errorf("the reason is %s", reason)
	}
}

// renamed is a Divider with a function for Destination.
type renamed struct {
	outbox.PublisherFunc
	name func(topic string) string
}

func (r renamed) Destination(topic string) string { return r.name(topic) }

func TestPanic_InDestinationFailsItsTopic(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{}
	publisher := renamed{b.Publish, func(topic string) string {
		if topic == "bad" {
			panic("Destination")
		}
		return topic
	}}
	config := swift()
	config.MaxAttempts = 2
	o.add(to("good", "a", "1"), to("bad", "a", "2"), to("bad", "a", "3"), to("good", "a", "4"))
	o.relay(outbox.Route(map[string]outbox.Publisher{"*": publisher}), config)
	o.empty()
	if n := o.count(`select count(*) from idem.dead_letters where class = 'panic' and attempts = 2 and source = 'bad'`); n != 2 {
		t.Errorf("%d dead letters", n)
	}
	b.wantTypes(t, []string{"1", "4"})
}

// The Divider moves a topic to another destination while the program runs.
func TestDivider_KeepsOrderWhenATopicMoves(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{}
	var moved atomic.Bool
	slow, answer := make(chan struct{}, 10), make(chan struct{})
	publisher := renamed{func(ctx context.Context, messages []outbox.Message) error {
		if messages[0].Type == "1" {
			slow <- struct{}{}
			<-answer
		}
		return b.Publish(ctx, messages)
	}, func(topic string) string {
		if moved.Load() && topic == "t" {
			return "new"
		}
		return topic
	}}
	o.add(to("t", "k", "1"))
	o.relay(publisher, swift())
	await(t, "the call at the old one", slow)
	moved.Store(true)
	o.add(to("t", "k", "2"), to("other", "f", "3"))
	eventually(t, "the later messages to be read", func() bool { return len(b.types("f")) == 1 })
	close(answer)
	o.empty()
	b.wantTypes(t, []string{"1", "2"}, "k")
}

type secretive struct{ payload string }

// OnDead, the Observer, the Sealer and KeepsOrder panic. The process continues, and the message
// that cannot be sealed stays in the outbox.
func TestPanic_InACallback(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{refuse: refusing("bad")}
	config := swift()
	config.MaxAttempts = 1
	config.OnDead = func(outbox.DeadLetter) { panic("OnDead") }
	config.Observer = panicking{}
	config.Sealer = panicking{}
	o.add(withBad(5)...)
	_, stop := o.relay(panickingKeeper{b.Publish}, config)
	eventually(t, "the others to be published", func() bool { return b.number() == 5 })
	eventually(t, "the unsealed message to be held", func() bool { return o.count(`select count(*) from idem.outbox where held and attempts > 1`) == 1 })
	stop()
	config.Sealer = nil
	o.relay(b, config)
	o.empty()
	o.wantDead(1)
}

type panicking struct{}

func (panicking) TracePublished(context.Context, outbox.TracePublishedData) { panic("TracePublished") }
func (panicking) Seal([]byte, []byte) (string, []byte, error)               { panic("Seal") }
func (panicking) Open(string, []byte, []byte) ([]byte, error)               { panic("Open") }

type panickingKeeper struct{ outbox.PublisherFunc }

func (panickingKeeper) KeepsOrder() bool { panic("KeepsOrder") }
