package idemkafka_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/idemkafka"
	"github.com/idem-go/idem/internal/ledger"
	"github.com/idem-go/idem/outbox"
)

// failed returns the ids that an error names, none if it blames none.
func failed(err error) []string {
	var named *outbox.PublishError
	if !errors.As(err, &named) {
		return nil
	}
	return slices.Sorted(maps.Keys(named.Failed))
}

func payloads(records []*kgo.Record) (all []string) {
	for _, r := range records {
		all = append(all, string(r.Value))
	}
	return all
}

func TestPublishedMessageCarriesAllThatItsConsumerNeeds(t *testing.T) {
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

func TestMessageThatCannotBePublishedIsNamedAndHoldsBackItsKeyAlone(t *testing.T) {
	t.Parallel()
	large := []byte(strings.Repeat("x", 2<<20))
	onClusters(t, 1, func(t *testing.T, c *cluster) {
		for name, bad := range map[string]outbox.Message{
			"too large":                    {Payload: large},
			"no such topic":                {Topic: "returns"},
			"a topic that is none":         {Topic: "a topic"},
			"a header that is not its own": {Headers: map[string]string{"id": "7"}},
		} {
			t.Run(name, func(t *testing.T) {
				if bad.Topic == "" {
					bad.Topic = c.topic
				}
				bad.ID, bad.Key = "2", "a"
				err := c.publisher(idemkafka.PublisherConfig{}).Publish(ledger.Within(t), []outbox.Message{
					bad,
					{ID: "3", Topic: bad.Topic, Key: "a"},
					{ID: "4", Topic: c.topic, Key: "b", Payload: []byte(name)},
					{ID: "5", Topic: c.topic, Payload: []byte(name)},
				})
				if diff := cmp.Diff([]string{"2", "3"}, failed(err)); diff != "" {
					t.Errorf("named (-want +got):\n%s\n%v", diff, err)
				}
			})
		}
		if got := payloads(c.stored(8)); len(got) != 8 {
			t.Errorf("%d messages are stored, want 8: %q", len(got), got)
		}
	})
}

func TestBrokersThatAreAwayBlameNoMessage(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*cluster){
		"down": func(c *cluster) { c.fake.Close() },
		"too few replicas": func(c *cluster) {
			c.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
		},
		"no leader": func(c *cluster) {
			c.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: -1})
		},
		"no right to the cluster": func(c *cluster) {
			c.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: kerr.ClusterAuthorizationFailed, Count: -1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 1)
			publisher := c.publisher(idemkafka.PublisherConfig{Timeout: 200 * time.Millisecond})
			fault(c)
			err := publisher.Publish(ledger.Within(t), []outbox.Message{{ID: "1", Topic: c.topic, Key: "a"}, {ID: "2", Topic: c.topic, Key: "a"}, {ID: "3", Topic: c.topic}})
			if err == nil || failed(err) != nil {
				t.Errorf("%v, want an error that names none", err)
			}
		})
	}
}

// The broker stores the message, and its answer is lost with the connection.
func TestLostAnswerOfABrokerMakesNoSecondMessage(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicasAfterAppend, Count: 3})
	c.publish(message("1", "a"), message("2", "a"), message("3", "a"))
	if diff := cmp.Diff([]string{"a1", "a2", "a3"}, payloads(c.stored(3))); diff != "" {
		t.Error(diff)
	}
}

func TestEndOfTheContextEndsPublishing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	publisher := c.publisher(idemkafka.PublisherConfig{Timeout: time.Hour})
	c.fake.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- publisher.Publish(ctx, []outbox.Message{{ID: "1", Topic: "orders"}}) }()
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want %v", err, context.Canceled)
		}
	case <-time.After(ledger.Limit):
		t.Error("it goes on")
	}
}

func TestClientThatWouldLoseMessagesIsRefused(t *testing.T) {
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
