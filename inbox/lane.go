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

// divide divides messages among up to n lanes. A lane has all messages of a key and all of an ID,
// in their order. The next key goes to the lane with the fewest messages.
func divide(messages []Message, n int) []lane {
	if n < 2 {
		one := lane{messages: messages, positions: make([]int, len(messages))}
		for i := range messages {
			one.positions[i] = i
		}
		return []lane{one}
	}
	groupOf := keyGroups(messages)
	size := map[int]int{}
	for i := range messages {
		size[groupOf(i)]++
	}
	lanes, laneOf := make([]lane, n), map[int]int{}
	load := make([]int, n)
	for i := range messages {
		g := groupOf(i)
		l, known := laneOf[g]
		if !known {
			l = slices.Index(load, slices.Min(load))
			laneOf[g], load[l] = l, load[l]+size[g]
		}
		lanes[l].messages, lanes[l].positions = append(lanes[l].messages, messages[i]), append(lanes[l].positions, i)
	}
	return slices.DeleteFunc(lanes, func(l lane) bool { return len(l.messages) == 0 })
}

// keyGroups returns a function that maps the index of a message to its group, which is the index of
// one of its messages. Messages with the same key or the same ID are in one group (union-find).
func keyGroups(messages []Message) func(i int) int {
	parent := make([]int, len(messages))
	find := func(i int) int {
		for parent[i] != i {
			parent[i] = parent[parent[i]]
			i = parent[i]
		}
		return i
	}
	ids, keys := make(map[db.MessageID]int, len(messages)), map[orderKey]int{}
	for i, m := range messages {
		parent[i] = i
		id := db.MessageID{Source: m.Source, ID: m.ID}
		if other, known := ids[id]; known {
			parent[i] = find(other)
		}
		ids[id] = i
		if m.Key == "" {
			continue
		}
		key := orderKey{m.Source, storedKey(m.Key)}
		if other, known := keys[key]; known {
			parent[find(i)] = find(other)
		}
		keys[key] = i
	}
	return find
}
