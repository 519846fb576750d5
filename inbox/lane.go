package inbox

import (
	"slices"

	"github.com/idem-go/idem/internal/db"
)

// lane is a part of the messages of a call, which has a transaction of its own beside those of the others: whole keys, in their order.
type lane struct {
	messages []Message
	places   []int // of each in the call
}

// lanesOf divides messages among up to so many lanes. A lane has all messages of a key, and a message is with others that have its id.
// The next key is given to the lane that has the fewest messages.
func lanesOf(messages []Message, most int) []lane {
	if most < 2 || len(messages) < 2 {
		return nil
	}
	together := unite(messages)
	size := map[int]int{}
	for i := range messages {
		size[together(i)]++
	}
	lanes, of := make([]lane, most), map[int]int{}
	load := make([]int, most)
	for i := range messages {
		part := together(i)
		n, known := of[part]
		if !known {
			n = slices.Index(load, slices.Min(load))
			of[part], load[n] = n, load[n]+size[part]
		}
		lanes[n].messages, lanes[n].places = append(lanes[n].messages, messages[i]), append(lanes[n].places, i)
	}
	return slices.DeleteFunc(lanes, func(l lane) bool { return len(l.messages) == 0 })
}

// unite returns a function that tells which messages are to stay together: it names one of them for all. They have a key or an id
// in common, or another one that has one in common with each.
func unite(messages []Message) func(i int) int {
	first := make([]int, len(messages))
	find := func(i int) int {
		for first[i] != i {
			first[i] = first[first[i]]
			i = first[i]
		}
		return i
	}
	ids, keys := make(map[db.MessageID]int, len(messages)), map[keyOf]int{}
	for i, m := range messages {
		first[i] = i
		id := db.MessageID{Source: m.Source, ID: m.ID}
		if other, known := ids[id]; known {
			first[i] = find(other)
		}
		ids[id] = i
		if m.Key == "" {
			continue
		}
		key := keyOf{m.Source, storable(m.Key)}
		if other, known := keys[key]; known {
			first[find(i)] = find(other)
		}
		keys[key] = i
	}
	return find
}
