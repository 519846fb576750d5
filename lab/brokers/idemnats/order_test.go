package idemnats_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/adapter/idemnats"
	"github.com/idem-go/idem/lab/ledger"
)

func TestConsumer_WaitsForMessagesOfADeadProcess(t *testing.T) {
	t.Parallel()
	js, l := newBroker(t).connect(), ledger.New(t)
	source := newSource(t, newStream(t, js), func(c *jetstream.ConsumerConfig) { c.AckWait = time.Second })
	publish(t, js, message("1", "a"))
	publish(t, js, message("2", "b"))
	dead, err := source.Fetch(2) // as a process does that dies then
	if err != nil {
		t.Fatal(err)
	}
	for range dead.Messages() {
	}
	for _, id := range []string{"3", "4", "5"} {
		publish(t, js, message(id, "a"))
	}
	ledger.Run(t, newConsumer(t, l, source, record(l), idemnats.ConsumerConfig{Ordered: true}).Run)
	l.WaitForPayloads(5)
	got := slices.DeleteFunc(l.Payloads(), func(line string) bool { return line == "b2" })
	if diff := cmp.Diff([]string{"a1", "a3", "a4", "a5"}, got); diff != "" {
		t.Error(diff)
	}
	settled(t, source)
}

func TestConsumer_ResolvesADeadlockOfTwoOrderedOnes(t *testing.T) {
	t.Parallel()
	js, l := newBroker(t).connect(), ledger.New(t)
	source := newSource(t, newStream(t, js), func(c *jetstream.ConsumerConfig) { c.AckWait = 300 * time.Millisecond })
	for range 2 {
		ledger.Run(t, newConsumer(t, l, source, record(l), idemnats.ConsumerConfig{Ordered: true, Batch: 2}).Run)
	}
	for _, id := range []string{"1", "2", "3", "4", "5", "6", "7", "8"} {
		publish(t, js, message(id, "a"))
	}
	l.WaitForPayloads(8)
	settled(t, source)
	if diff := cmp.Diff([]string{"a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8"}, l.Payloads()); diff != "" {
		t.Error(diff)
	}
}

func TestConsumer_OfAPriorityGroupKeepsTheOrder(t *testing.T) {
	t.Parallel()
	b, l := newBroker(t), ledger.New(t)
	js := b.connect()
	source := newSource(t, newStream(t, js), func(c *jetstream.ConsumerConfig) {
		c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = jetstream.PriorityPolicyPinned, []string{"one"}, time.Minute
	})
	for range 2 { // each process has a connection and a pin of its own
		source, err := b.connect().Consumer(ledger.Within(t), "ORDERS", "billing")
		if err != nil {
			t.Fatal(err)
		}
		ledger.Run(t, newConsumer(t, l, source, record(l), idemnats.ConsumerConfig{Ordered: true, Batch: 2, Group: "one"}).Run)
	}
	var want []string
	for i := range 20 {
		id := fmt.Sprintf("%02d", i)
		publish(t, js, message(id, "a"))
		want = append(want, "a"+id)
	}
	l.WaitForPayloads(20)
	settled(t, source)
	if diff := cmp.Diff(want, l.Payloads()); diff != "" {
		t.Error(diff)
	}
}
