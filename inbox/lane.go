package inbox

import (
	"slices"

	"github.com/idem-go/idem/internal/db"
)

// lane is a share of the messages of a call, handled in transactions of its own beside other lanes.
type lane struct {
	messages  []Message
	positions []int // in the call
}

// divide divides messages among up to n lanes. A lane has all messages of a key, and all copies of
// a message without a key, in their order. The next key goes to the lane with the fewest messages.
// If messages with one ID have different keys, one lane has all messages.
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
