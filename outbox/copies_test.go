package outbox_test

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem/outbox"
)

// An event that goes to several topics has one ID in all of them. A Publisher names messages by their IDs: no call has two of one ID, so that
// what is named is one message, and the others leave once.
func TestCopyOfAMessageInAnotherTopicDoesNotFailWithIt(t *testing.T) {
	t.Parallel()
	for name, keepsOrder := range map[string]bool{"a Publisher": false, "an OrderKeeper": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			b := &broker{refuse: func(m *outbox.Message) error {
				if m.Topic == "bad" {
					return errRefused
				}
				return nil
			}}
			var doubled atomic.Int64
			b.before = func(messages []outbox.Message) error {
				met := map[string]bool{}
				for _, m := range messages {
					if met[m.ID] {
						doubled.Add(1)
					}
					met[m.ID] = true
				}
				return nil
			}
			var publisher outbox.Publisher = b
			if keepsOrder {
				publisher = keepingOrder{b}
			}
			var want []string
			for range 20 {
				id := outbox.NewID()
				want = append(want, id)
				for _, topic := range []string{"one", "bad", "two"} {
					o.add(outbox.Message{ID: id, Topic: topic, Key: "a"})
				}
			}
			config := swift()
			config.MaxAttempts = 2
			o.relay(publisher, config)
			o.empty()
			if n := doubled.Load(); n > 0 {
				t.Errorf("calls have had %d messages of an ID that they had already", n)
			}
			left := map[string][]string{}
			for _, m := range b.all() {
				left[m.Topic] = append(left[m.Topic], m.ID)
			}
			if !slices.Equal(left["one"], want) || !slices.Equal(left["two"], want) || len(left) != 2 {
				t.Errorf("%d and %d have left, of %d of each", len(left["one"]), len(left["two"]), len(want))
			}
			if n := o.count(`select count(*) from idem.dead_letters where source = 'bad'`); n != len(want) || n != o.count(`select count(*) from idem.dead_letters`) {
				t.Errorf("%d of the topic that is refused are dead", n)
			}
		})
	}
}

// keepingOrder is a broker of which a call may have several messages of a key.
type keepingOrder struct{ *broker }

func (keepingOrder) KeepsOrder() bool { return true }
