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
)

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
