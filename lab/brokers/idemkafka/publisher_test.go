package idemkafka_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/adapter/idemkafka"
	"github.com/idem-go/idem/outbox"
)

func TestPublisher_SendsAllFieldsOfAMessage(t *testing.T) {
	t.Parallel()
	onClusters(t, 1, func(t *testing.T, c *cluster) {
		c.publish(outbox.Message{ID: "b3f9", Key: " a key\n", Type: "OrderPlaced", Payload: []byte("{}"), Headers: map[string]string{"tenant": "7"}})
		got := c.stored(1)[0]
		want := []kgo.RecordHeader{{Key: "id", Value: []byte("b3f9")}, {Key: "type", Value: []byte("OrderPlaced")}, {Key: "tenant", Value: []byte("7")}}
		if diff := cmp.Diff(want, got.Headers); diff != "" {
			t.Errorf("headers (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(" a key\n {}", string(got.Key)+" "+string(got.Value)); diff != "" {
			t.Error(diff)
		}
	})
}

// The broker stores the messages but reports an error.
func TestPublisher_StoresOnceAfterALostAnswer(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicasAfterAppend, Count: 3})
	c.publish(message("1", "a"), message("2", "b"), message("3", "c"))
	c.publish(message("4", "d"))
	var got []string
	for _, r := range c.stored(4) {
		got = append(got, string(r.Value))
	}
	if diff := cmp.Diff([]string{"a1", "b2", "c3", "d4"}, slices.Sorted(slices.Values(got))); diff != "" {
		t.Error(diff)
	}
}

func TestNewPublisher_RefusesAClientThatLosesMessages(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	for name, opts := range map[string][]kgo.Opt{
		"not idempotent": {kgo.DisableIdempotentWrite()},
		"leader alone":   {kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck())},
	} {
		if _, err := idemkafka.NewPublisher(c.client(opts...), idemkafka.PublisherConfig{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
