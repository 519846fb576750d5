package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
)

// named returns the configuration of a relay with a Name and Topics.
func named(name string, topics ...string) outbox.RelayConfig {
	config := swift()
	config.Name, config.Topics = name, topics
	return config
}

// The relay without a Name publishes the topics of no other relay.
func TestTopics_DivideAnOutboxAmongRelays(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	hooks, orders, rest := &broker{}, &broker{}, &broker{}
	o.relay(rest, swift()) // has every topic until the other relays are recorded
	o.add(to("orders", "a", "first"))
	o.empty()
	if rest.number() != 1 {
		t.Fatalf("%d messages were published", rest.number())
	}
	o.relay(hooks, named("hooks", "webhook.*", "a%b"))
	o.relay(orders, named("orders", "orders"))
	eventually(t, "both relays to be recorded and running", func() bool {
		return o.count(`select count(distinct r.relay) from idem.relays r where generation = (select max(generation) from idem.relay_topics)`) == 3
	})
	for i := range 60 {
		o.add(to("webhook.7", "k", fmt.Sprint("h", i)), to("orders", "k", fmt.Sprint("o", i)), to("orders2", "k", fmt.Sprint("r", i)),
			to("a%b", "", "h"), to("axb", "", "r"))
	}
	o.empty()
	for name, got := range map[string]*broker{"h": hooks, "o": orders, "r": rest} {
		var want []string
		for i := range 60 {
			want = append(want, fmt.Sprint(name, i))
		}
		got.wantTypes(t, want, "k")
	}
	if h, o, r := hooks.number(), orders.number(), rest.number(); h != 120 || o != 60 || r != 121 {
		t.Errorf("%d, %d and %d messages were published", h, o, r)
	}
}

// ForgetRelay makes the topics of a stopped relay free.
func TestTopics_CannotOverlap(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	_, stop := o.relay(&broker{}, named("first", "orders.*"))
	eventually(t, "the topics to be recorded", func() bool { return o.count(`select count(*) from idem.relays where relay = 'first'`) == 16 })
	stop() // its topics stay recorded
	for _, topic := range []string{"orders.7", "orders.*", "ord*", "*"} {
		err := outbox.NewRelay(o.pool, &broker{}, named("second", topic)).Run(t.Context())
		if !errors.Is(err, outbox.ErrTopicTaken) || !strings.Contains(err.Error(), `"first"`) {
			t.Errorf("%s: %v", topic, err)
		}
	}
	eventually(t, "the server to end the session", func() bool { return outbox.ForgetRelay(t.Context(), o.pool, "first") == nil })
	b := &broker{}
	o.relay(b, named("second", "orders.7"))
	o.add(to("orders.7", "", "1"))
	o.empty()
	if err := outbox.ForgetRelay(t.Context(), o.pool, "second"); !errors.Is(err, outbox.ErrRelayRuns) {
		t.Errorf("ForgetRelay of a running relay: %v", err)
	}
	if err := outbox.ForgetRelay(t.Context(), o.pool, "another"); !errors.Is(err, outbox.ErrNoRelay) {
		t.Errorf("ForgetRelay of an unknown relay: %v", err)
	}
	if acts := o.text(`select coalesce(string_agg(concat_ws(' ', act, side, consumer), ','), '') from idem.audit`); acts != "forget outbox first" {
		t.Errorf("audit: %s", acts)
	}
}

// The relay that had all topics is in a call when another relay gets some of them. The other relay
// waits for the call.
func TestTopics_MoveToAnotherRelay(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	slow := newGate()
	config := swift()
	config.BatchSize, config.Drain = 5, limit
	var want []string
	for i := range 40 {
		o.add(to("orders", "k", fmt.Sprint(i)), to("other", "", fmt.Sprint(i)))
		want = append(want, fmt.Sprint(i))
	}
	o.relay(slow, config)
	await(t, "the first call", slow.entered)
	elsewhere := &database{t: t, dsn: o.dsn, pool: pgtest.Open(t, o.dsn)}
	elsewhere.relay(&slow.broker, named("orders", "orders"))
	eventually(t, "the topics to be recorded", func() bool { return o.count(`select count(*) from idem.relay_topics`) == 1 })
	if n := o.count(`select count(*) from idem.relays where relay = 'orders'`); n != 0 {
		t.Errorf("it has %d lanes while the other one is in a call", n)
	}
	close(slow.open)
	o.empty()
	if slow.wantTypes(t, want, "k"); slow.number() != 80 {
		t.Errorf("%d messages", slow.number())
	}
}

// The old process relays with its own topics until it ends, and then the new process with its own.
func TestTopics_ChangeInARollout(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	before, after, rest := &broker{}, &broker{}, &broker{}
	o.relay(rest, swift())
	_, stop := o.relay(before, named("web", "a", "b"))
	recorded := func(topics string) func() bool {
		return func() bool {
			return o.count(`select count(*) from idem.relay_topics where topics = $1::text::text[]`, topics) == 1
		}
	}
	eventually(t, "the topics of the first process", recorded("{a,b}"))
	eventually(t, "the first process to relay", func() bool { return o.count(`select count(*) from idem.relays where relay = 'web'`) == 16 })
	o.relay(after, named("web", "b", "c"))
	publish := func(round string) {
		for _, topic := range []string{"a", "b", "c"} {
			o.add(to(topic, "k", round+topic))
		}
		o.empty()
	}
	publish("1")
	stop()
	eventually(t, "the topics of the next process", recorded("{b,c}"))
	eventually(t, "the next process to relay", func() bool {
		return o.count(`select count(*) from idem.relays where relay = 'web' and generation = (select max(generation) from idem.relay_topics)`) == 16
	})
	publish("2")
	if n := before.number() + after.number() + rest.number(); n != 6 {
		t.Errorf("%d messages were published", n)
	}
	before.wantTypes(t, []string{"1a", "1b"})
	after.wantTypes(t, []string{"2b", "2c"})
}

func TestRoute_SelectsThePublisherByTopic(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	all, orders, hooks := &broker{}, &broker{}, &broker{}
	away := outbox.PublisherFunc(func(context.Context, []outbox.Message) error { return errors.New("away") })
	config := swift()
	config.MaxAttempts = 1
	o.relay(outbox.Route(map[string]outbox.Publisher{"orders.*": orders, "orders.eu": all, "hook *": divided{hooks.Publish}, "away": away}), config)
	for i := range 20 {
		o.add(to("orders.us", "", "o"), to("orders.eu", "", "a"), to(fmt.Sprint("hook ", i), "", "h"), to("away", fmt.Sprint(i), "w"), to("none", "", "n"))
	}
	eventually(t, "all but those of the one that is away", func() bool { return o.waiting() == 20 })
	if all.number() != 20 || orders.number() != 20 || hooks.number() != 20 {
		t.Errorf("%d, %d and %d messages were published", all.number(), orders.number(), hooks.number())
	}
	if n := o.count(`select count(*) from idem.dead_letters where source = 'none' and reason like '%no route%'`); n != 20 {
		t.Errorf("%d dead letters", n)
	}
	err := outbox.Route(map[string]outbox.Publisher{"a": all, "b": away}).Publish(t.Context(), []outbox.Message{{ID: "1", Topic: "a"}, {ID: "2", Topic: "b"}})
	if failed, ok := errors.AsType[*outbox.PublishError](err); !ok || len(failed.Failed) != 1 || failed.Failed["2"] == nil {
		t.Errorf("%v", err)
	}
}
