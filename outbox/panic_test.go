package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem/internal/panics"
	"github.com/idem-go/idem/outbox"
)

// unfilled is an error with a nil pointer.
type unfilled struct{ text *string }

func (e *unfilled) Error() string { return *e.text }

type badUnwrap struct{}

func (badUnwrap) Error() string { return "it is wrapped" }
func (badUnwrap) Unwrap() error { panic("Unwrap") }

type badClass struct{}

func (badClass) Error() string { return "it is of a class" }
func (badClass) Class() string { panic("Class") }

// The methods of an error are code of the application.
func TestPanic_InAnErrorMethodFailsOneMessage(t *testing.T) {
	t.Parallel()
	for name, reason := range map[string]error{
		"Error": &unfilled{}, "Unwrap": badUnwrap{}, "Class": badClass{}, "Error of what is away": outbox.RetryLater(&unfilled{}, 1),
		"nil of a type inside": (*outbox.PublishError)(nil),
	} {
		for _, named := range []bool{true, false} {
			if _, isPublishError := reason.(*outbox.PublishError); isPublishError && !named {
				continue // see TestPublishError_NilIsNotSuccess
			}
			t.Run(fmt.Sprintf("%s, named: %t", name, named), func(t *testing.T) {
				t.Parallel()
				o := newDatabase(t)
				b := &broker{}
				publisher := outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
					for i, m := range messages {
						if m.Type == "bad" && named {
							return errors.Join(&outbox.PublishError{Failed: map[string]error{m.ID: reason}}, b.Publish(ctx, append(messages[:i:i], messages[i+1:]...)))
						} else if m.Type == "bad" {
							return reason
						}
					}
					return b.Publish(ctx, messages)
				})
				config := swift()
				config.MaxAttempts = 2
				o.add(withBad(5)...)
				o.relay(publisher, config)
				o.empty()
				if n := o.count(`select count(*) from idem.dead_letters where class = 'panic' and attempts = 2`); n != 1 || b.number() != 5 {
					t.Errorf("%d dead letters, %d messages were published", n, b.number())
				}
			})
		}
	}
}

// A Publisher returns a nil *PublishError by mistake: it has a variable of that type, and no error.
func TestPublishError_NilIsNotSuccess(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	var works atomic.Bool
	asked := make(chan struct{}, 1000)
	b := &broker{}
	publisher := outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
		if works.Load() {
			return b.Publish(ctx, messages)
		}
		asked <- struct{}{}
		var none *outbox.PublishError
		return none
	})
	o.add(message("a", "1"), message("a", "2"))
	o.relay(publisher, swift())
	for range 3 {
		await(t, "a call", asked)
	}
	works.Store(true)
	o.empty()
	b.wantTypes(t, []string{"1", "2"})
}

// The adapters and webhook name the message for which a function has panicked. The others of the
// call are not published again.
func TestPanic_NamedByThePublisher(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{refuse: func(m *outbox.Message) error {
		if m.Type == "bad" {
			return panics.Try(func() error { panic("a bug") })
		}
		return nil
	}}
	config := swift()
	config.MaxAttempts = 3
	o.add(withBad(5)...)
	o.relay(b, config)
	o.empty()
	if n := o.count(`select count(*) from idem.dead_letters where class = 'panic' and attempts = 3`); n != 1 || b.number() != 5 {
		t.Errorf("%d dead letters, %d messages were published", n, b.number())
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

// forgetful is an OrderKeeper whose KeepsOrder panics.
type forgetful struct{ outbox.PublisherFunc }

func (forgetful) KeepsOrder() bool { panic("KeepsOrder") }

func TestPanic_InKeepsOrderMeansFalse(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{}
	o.add(message("a", "1"), message("a", "2"), message("b", "3"))
	o.relay(forgetful{func(ctx context.Context, messages []outbox.Message) error {
		if len(messages) > 2 {
			t.Errorf("a call with %d messages", len(messages))
		}
		return b.Publish(ctx, messages)
	}}, swift())
	o.empty()
	b.wantTypes(t, []string{"1", "2"}, "a")
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

// The value itself may contain data of the message.
func TestPanic_StoresTheTypeOfItsValue(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	publisher := outbox.PublisherFunc(func(_ context.Context, messages []outbox.Message) error {
		panic(secretive{string(messages[0].Payload)})
	})
	config := swift()
	config.MaxAttempts = 1
	o.add(message("a", "top secret"))
	o.relay(publisher, config)
	o.empty()
	if reason := o.text(`select reason from idem.dead_letters where class = 'panic'`); strings.Contains(reason, "secret}") || strings.Contains(reason, "top secret") ||
		!strings.Contains(reason, "outbox_test.secretive") {
		t.Errorf("the reason is %s", reason)
	}
}

// OnDead, the Observer and the Sealer panic. The process continues.
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
	_, stop := o.relay(b, config)
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
