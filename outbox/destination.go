package outbox

import (
	"cmp"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/db"
)

// message is a message in memory.
type message struct {
	db.Queued
	key    *key
	stored bool // the table has it as held
	repeat bool // a Publisher may have had it before
}

// key is what leaves in order: the messages of a topic and key, or one message without a key.
type key struct {
	name   db.HeldKey
	to     *destination
	queue  []*message // in order of position; without those that are in a call
	inCall int
	ready  bool // in a list of its destination
	held   bool // the table may have held messages of it, behind those in memory
	failed bool // its first message has failed or was postponed
	index  int  // in the heap of waiting keys, or -1
	due    time.Time

	postponed time.Time // since when its first message is postponed by RetryLater
}

func (k *key) isIdle() bool { return len(k.queue) == 0 && k.inCall == 0 }

// call is one call of the Publisher.
type call struct {
	to       *destination
	messages []*message
	began    time.Time
	single   bool // of a round
}

const (
	slowCall   = 100 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// destination is where messages go: its queue, its call, and how long it is left alone. A Publisher that is no Divider has one.
type destination struct {
	name   string
	topics []string // that are pinned to it
	call   *call    // under way, or nil
	stale  bool     // the call began before a restart: nothing is taken until it ends

	// behind says that messages beyond position were not taken. A read from there brings them.
	behind   bool
	position int64
	served   int64 // the number of its last read of that kind

	offered, marked int // messages of it in the last read of all, and those of them that the table keeps as held

	retryKeys, freshKeys []*key // that are ready
	retries, fresh       int    // messages in the queue that the table holds, and others
	waiting              waitingKeys

	octets int // of the messages in memory
	wants  int // octets of a message for which there was no memory, or 0

	size  int  // how many messages a call may have
	least int  // how many messages the queue has at least
	slow  bool // the last call was

	unnamed   int       // calls in a row that have ended with an error that names no message
	round     *round    // of single calls, or nil
	turns     int       // single calls
	retryAt   time.Time // it is backed off until then
	backoff   time.Duration
	downSince time.Time // since when it is unavailable
	loggedAt  time.Time // when that was logged
}

// round is a round of calls with one message each, after errors that name no message.
type round struct {
	began                  time.Time
	tried, accepted, again int
	repeats                bool // it tries again what was refused in the round before, ahead of the first accepted message
	refused                []refusal
}

type refusal struct {
	m     *message
	err   error
	early bool // nothing was accepted before: an outage may have ended since then
}

// restart forgets the queue. What is known of the destination itself stays.
func (d *destination) restart() {
	d.topics, d.retryKeys, d.freshKeys, d.waiting, d.retries, d.fresh, d.wants = nil, nil, nil, nil, 0, 0, 0
	d.stale, d.behind, d.position, d.round = d.call != nil, d.call != nil, 0, nil
	d.unnamed = min(d.unnamed, 1)
}

func (d *destination) isWell() bool {
	return d.unnamed == 0 && d.round == nil && d.backoff == 0 && d.downSince.IsZero()
}

// share is how many messages the queue may have, beside those that the table holds.
func (d *destination) share() int { return max(d.size, d.least) }

// markBehind says that the message at a position was not taken.
func (d *destination) markBehind(position int64) {
	if !d.behind || position <= d.position {
		d.behind, d.position = true, position-1
	}
}

func (d *destination) count(m *message, n int) {
	if m.stored {
		d.retries += n
	} else {
		d.fresh += n
	}
}

// ready puts a key that has messages into the list from which calls are composed.
func (d *destination) ready(k *key, front bool) {
	if k.ready {
		return
	}
	k.ready = true
	list := &d.freshKeys
	if k.queue[0].stored {
		list = &d.retryKeys
	}
	if front {
		*list = slices.Insert(*list, 0, k)
	} else {
		*list = append(*list, k)
	}
}

// compose takes the messages of the next call from the queue: those that are tried again first, up to half of the call. No two of them have
// one ID, because a Publisher names messages by their IDs.
func (d *destination) compose(size int, keeps bool) []*message {
	var messages []*message
	ids := map[string]bool{}
	take := func(list *[]*key, limit int) {
		var repeated []*key
		for len(*list) > 0 && len(messages) < limit {
			k := (*list)[0]
			*list = (*list)[1:]
			if k.ready = false; len(k.queue) == 0 || k.inCall > 0 {
				continue
			}
			n := 0
			for n < len(k.queue) && len(messages) < limit && !ids[k.queue[n].ID] && (n == 0 || keeps) {
				m := k.queue[n]
				messages, ids[m.ID] = append(messages, m), true
				d.count(m, -1)
				n++
			}
			if k.inCall, k.queue = n, k.queue[n:]; n == 0 {
				repeated = append(repeated, k)
			}
		}
		for _, k := range slices.Backward(repeated) {
			d.ready(k, true)
		}
	}
	if d.round != nil { // one of each in turn, so that no round is one of the same messages
		if d.turns++; d.turns%2 == 0 {
			take(&d.freshKeys, size)
		}
	}
	take(&d.retryKeys, max(size/2, 1))
	take(&d.freshKeys, size)
	take(&d.retryKeys, size)
	slices.SortFunc(messages, func(a, b *message) int { return cmp.Compare(a.Seq, b.Seq) })
	return messages
}

// fit lets a destination have larger calls while it is quick.
func (d *destination) fit(took time.Duration, messages int, divided bool, limit int) {
	if d.slow = divided && took > slowCall; d.slow {
		d.size = min(d.size, d.least)
		return
	}
	if messages >= d.size/2 {
		d.size = min(2*d.size, limit)
	}
}

// isNews reports whether an error is to be logged: the first one is, and then one now and then.
func (d *destination) isNews(err error, now time.Time) bool {
	if err == nil || now.Sub(d.loggedAt) < maxBackoff {
		return false
	}
	d.loggedAt = now
	return true
}

// waitingKeys is a heap of keys by their due time.
type waitingKeys []*key

func (w waitingKeys) Len() int           { return len(w) }
func (w waitingKeys) Less(i, j int) bool { return w[i].due.Before(w[j].due) }
func (w waitingKeys) Swap(i, j int)      { w[i], w[j] = w[j], w[i]; w[i].index, w[j].index = i, j }

// Push implements heap.Interface.
func (w *waitingKeys) Push(x any) {
	k := x.(*key)
	k.index = len(*w)
	*w = append(*w, k)
}

// Pop implements heap.Interface.
func (w *waitingKeys) Pop() any {
	last := len(*w) - 1
	k := (*w)[last]
	(*w)[last] = nil
	*w = (*w)[:last]
	k.index = -1
	return k
}
