package idemwatermill_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idem-go/idem/adapter/idemwatermill"
	"github.com/idem-go/idem/outbox"
)

var errRefused = errors.New("refused")

// refusingPublisher refuses some topics, or all messages after the first ones.
type refusingPublisher struct {
	message.Publisher
	refuses []string
	limit   int // refuses all messages after so many
	taken   int
}

func (p *refusingPublisher) Publish(topic string, messages ...*message.Message) error {
	if topic == "panics" {
		panic("a bug")
	}
	if p.limit > 0 && p.taken >= p.limit || slices.Contains(p.refuses, topic) {
		return errRefused
	}
	p.taken++
	return nil
}

func TestPublisher_NamesMessagesUnlessTheBrokerIsUnavailable(t *testing.T) {
	t.Parallel()
	blames := idemwatermill.PublisherConfig{Blames: func(err error) bool { return errors.Is(err, errRefused) }}
	for name, test := range map[string]struct {
		publisher refusingPublisher
		config    idemwatermill.PublisherConfig
		topics    string
		named     string // the positions of the messages, or "none" if the error names none
	}{
		"failures before a success": {refusingPublisher{refuses: []string{"bad"}}, idemwatermill.PublisherConfig{}, "good bad bad bad bad good", "[1 2 3 4]"},
		"a panic":                   {refusingPublisher{}, idemwatermill.PublisherConfig{}, "panics good", "[0]"},
		"a panic alone":             {refusingPublisher{}, idemwatermill.PublisherConfig{}, "panics", "[0]"},
		"an outage":                 {refusingPublisher{refuses: []string{"good"}}, idemwatermill.PublisherConfig{}, "good good good good", "none"},
		"an outage that begins":     {refusingPublisher{limit: 4}, idemwatermill.PublisherConfig{}, "good good good good good good good", "none"},
		"blamed failures":           {refusingPublisher{refuses: []string{"good"}}, blames, "good good good good", "[0 1 2 3]"},
	} {
		var messages []outbox.Message
		for _, topic := range strings.Fields(test.topics) {
			messages = append(messages, newMessage(topic, "", ""))
		}
		err := idemwatermill.NewPublisher(&test.publisher, test.config).Publish(t.Context(), messages)
		got := "none"
		if named := new(outbox.PublishError); errors.As(err, &named) {
			var failed []int
			for i, m := range messages {
				if named.Failed[m.ID] != nil {
					failed = append(failed, i)
				}
			}
			got = fmt.Sprint(failed)
		}
		if err == nil || got != test.named {
			t.Errorf("%s: the error names %s, want %s: %v", name, got, test.named, err)
		}
	}
}
