package idemamqp

import "github.com/idem-go/idem/outbox"

// order gives out messages in waves that may be sent at once. Of the messages of one topic and key, each goes in a wave of its
// own: a broker may refuse one message and take the next, and what was sent cannot be held back.
type order struct {
	left []outbox.Message
	sent []outbox.Message
	shut map[stream]bool // has a message that was not published
}

type stream struct{ topic, key string }

func newOrder(messages []outbox.Message) *order {
	return &order{left: messages, shut: map[stream]bool{}}
}

func (o *order) more() bool { return len(o.left) > 0 }

// next returns a wave. What stands behind a message that has failed has failed as well.
func (o *order) next(failed map[string]error) []outbox.Message {
	for _, m := range o.sent {
		if failed[m.ID] != nil && m.Key != "" {
			o.shut[stream{m.Topic, m.Key}] = true
		}
	}
	var wave, left []outbox.Message
	taken := map[stream]bool{}
	for i, m := range o.left {
		if len(wave) == window {
			left = append(left, o.left[i:]...)
			break
		}
		s := stream{m.Topic, m.Key}
		switch {
		case m.Key != "" && o.shut[s]:
			failed[m.ID] = errBehind
		case m.Key != "" && taken[s]:
			left = append(left, m)
		default:
			taken[s] = true
			wave = append(wave, m)
		}
	}
	o.left, o.sent = left, wave
	return wave
}
