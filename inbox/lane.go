package inbox

import (
	"slices"

	"github.com/idem-go/idem/internal/db"
)

// lane is a part of the messages of a call. Lanes are handled concurrently, each in transactions of
// its own.
type lane struct {
	messages  []Message
	positions []int // indexes in the messages of the call
}

// divide divides messages among up to n lanes. All messages of a key are in one lane, in their
// order. All copies of a message without a key are also in one lane. Each new key goes to the lane
// with the fewest messages. If two messages have the same ID but different keys, there is only one
// lane.
func divide(messages []Message, n int) []lane {
	groups, keys := make([]orderKey, len(messages)), map[db.MessageID]string{}
	size := map[orderKey]int{}
	for i, m := range messages {
		id := db.MessageID{Source: m.Source, ID: m.ID}
		if key, known := keys[id]; known && key != m.Key {
			n = 1
		}
		keys[id] = m.Key
		if m.Key == "" {
			groups[i] = orderKey{source: m.Source, key: "ID " + m.ID}
		} else {
			groups[i] = orderKey{source: m.Source, key: "key " + storedKey(m.Key)}
		}
		size[groups[i]]++
	}
	n = max(n, 1)
	lanes, laneOf, load := make([]lane, n), map[orderKey]int{}, make([]int, n)
	for i, g := range groups {
		l, known := laneOf[g]
		if !known {
			l = slices.Index(load, slices.Min(load))
			laneOf[g], load[l] = l, load[l]+size[g]
		}
		lanes[l].messages, lanes[l].positions = append(lanes[l].messages, messages[i]), append(lanes[l].positions, i)
	}
	return slices.DeleteFunc(lanes, func(l lane) bool { return len(l.messages) == 0 })
}
