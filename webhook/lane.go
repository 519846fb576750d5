package webhook

import "github.com/idem-go/idem/outbox"

// lane is what has to be sent one after the other: the messages of one topic and key, or a message without a key.
type lane []outbox.Message

// lanesOf returns the lanes of each topic, in the order of their first messages.
func lanesOf(messages []outbox.Message) map[string][]lane {
	lanes := map[string][]lane{}
	type name struct{ topic, key string }
	index := map[name]int{}
	for _, m := range messages {
		at, known := index[name{m.Topic, m.Key}]
		if m.Key == "" || !known {
			index[name{m.Topic, m.Key}] = len(lanes[m.Topic])
			lanes[m.Topic] = append(lanes[m.Topic], lane{m})
			continue
		}
		lanes[m.Topic][at] = append(lanes[m.Topic][at], m)
	}
	return lanes
}
