package idemwatermill_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/adapter/idemwatermill"
	"github.com/idem-go/idem/outbox"
)

var errRefused = errors.New("refused")

// picky is a publisher of Watermill's that refuses some topics, or everything once it is away.
type picky struct {
	message.Publisher
	refuses []string
	away    int // after so many messages
	taken   []string
}

func (p *picky) Publish(topic string, messages ...*message.Message) error {
	if topic == "panics" {
		panic("a bug")
	}
	if p.away > 0 && len(p.taken) >= p.away || slices.Contains(p.refuses, topic) {
		return errRefused
	}
	p.taken = append(p.taken, string(messages[0].Payload))
	return nil
}

func TestMessageIsBlamedIfTheBrokerTakesAnotherOneAfterIt(t *testing.T) {
	t.Parallel()
	messages := []outbox.Message{
		said("good", "a", "1"), said("bad", "b", "2"), said("bad", "", "3"), said("bad", "d", "4"), said("bad", "c", "5"), said("bad", "e", "6"), said("good", "b", "7"),
	}
	p := &picky{refuses: []string{"bad"}}
	err := idemwatermill.NewPublisher(p, idemwatermill.PublisherConfig{}).Publish(t.Context(), messages)
	var named *outbox.PublishError
	if !errors.As(err, &named) {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"2", "3", "4", "5", "6"}, failed(named, messages)); diff != "" {
		t.Errorf("named (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"1", "7"}, p.taken); diff != "" {
		t.Errorf("taken (-want +got):\n%s", diff)
	}
}

func TestMessageAtWhichWatermillsPublisherPanicsIsToBlame(t *testing.T) {
	t.Parallel()
	messages := []outbox.Message{said("panics", "a", "1"), said("good", "b", "2")}
	for n := range 2 {
		p := &picky{}
		var named *outbox.PublishError
		err := idemwatermill.NewPublisher(p, idemwatermill.PublisherConfig{}).Publish(t.Context(), messages[:n+1])
		if !errors.As(err, &named) || len(named.Failed) != 1 || named.Failed[messages[0].ID] == nil || len(p.taken) != n {
			t.Errorf("%v; taken: %v", err, p.taken)
		}
	}
}

func TestBrokerThatIsAwayBlamesNobody(t *testing.T) {
	t.Parallel()
	var messages []outbox.Message
	for range 10 {
		messages = append(messages, said("good", "", "m"))
	}
	var named *outbox.PublishError
	for _, p := range []*picky{{refuses: []string{"good"}}, {away: 4}} {
		err := idemwatermill.NewPublisher(p, idemwatermill.PublisherConfig{}).Publish(t.Context(), messages)
		if !errors.Is(err, errRefused) || errors.As(err, &named) {
			t.Errorf("%v", err)
		}
	}
	// Who knows an error for a message's own says so.
	config := idemwatermill.PublisherConfig{Blames: func(err error) bool { return errors.Is(err, errRefused) }}
	err := idemwatermill.NewPublisher(&picky{refuses: []string{"good"}}, config).Publish(t.Context(), messages)
	if !errors.As(err, &named) || len(named.Failed) != len(messages) {
		t.Errorf("%v", err)
	}
}

func failed(err *outbox.PublishError, messages []outbox.Message) (bodies []string) {
	for _, m := range messages {
		if err.Failed[m.ID] != nil {
			bodies = append(bodies, string(m.Payload))
		}
	}
	return bodies
}
