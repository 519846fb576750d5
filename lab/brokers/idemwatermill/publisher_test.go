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

// refusingPublisher refuses some topics, or all messages after the first ones.
type refusingPublisher struct {
	message.Publisher
	refuses []string
	limit   int // refuses all messages after so many
	taken   []string
}

func (p *refusingPublisher) Publish(topic string, messages ...*message.Message) error {
	if topic == "panics" {
		panic("a bug")
	}
	if p.limit > 0 && len(p.taken) >= p.limit || slices.Contains(p.refuses, topic) {
		return errRefused
	}
	p.taken = append(p.taken, string(messages[0].Payload))
	return nil
}

func TestPublisher_NamesFailuresBeforeASuccess(t *testing.T) {
	t.Parallel()
	messages := []outbox.Message{
		newMessage("good", "a", "1"), newMessage("bad", "b", "2"), newMessage("bad", "", "3"), newMessage("bad", "d", "4"), newMessage("bad", "c", "5"), newMessage("bad", "e", "6"), newMessage("good", "b", "7"),
	}
	p := &refusingPublisher{refuses: []string{"bad"}}
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

func TestPublisher_NamesAMessageThatPanics(t *testing.T) {
	t.Parallel()
	messages := []outbox.Message{newMessage("panics", "a", "1"), newMessage("good", "b", "2")}
	for n := range 2 {
		p := &refusingPublisher{}
		var named *outbox.PublishError
		err := idemwatermill.NewPublisher(p, idemwatermill.PublisherConfig{}).Publish(t.Context(), messages[:n+1])
		if !errors.As(err, &named) || len(named.Failed) != 1 || named.Failed[messages[0].ID] == nil || len(p.taken) != n {
			t.Errorf("%v; taken: %v", err, p.taken)
		}
	}
}

func TestPublisher_NamesNoMessageInAnOutage(t *testing.T) {
	t.Parallel()
	var messages []outbox.Message
	for range 10 {
		messages = append(messages, newMessage("good", "", "m"))
	}
	var named *outbox.PublishError
	for _, p := range []*refusingPublisher{{refuses: []string{"good"}}, {limit: 4}} {
		err := idemwatermill.NewPublisher(p, idemwatermill.PublisherConfig{}).Publish(t.Context(), messages)
		if !errors.Is(err, errRefused) || errors.As(err, &named) {
			t.Errorf("%v", err)
		}
	}
	// Blames attributes the errors to their messages.
	config := idemwatermill.PublisherConfig{Blames: func(err error) bool { return errors.Is(err, errRefused) }}
	err := idemwatermill.NewPublisher(&refusingPublisher{refuses: []string{"good"}}, config).Publish(t.Context(), messages)
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
