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
	held   bool // the row is marked as held in the table: only a read of its due key returns it (see scheduler)
	repeat bool // a Publisher may have received the message before
}

// key is the state of the messages of one topic and key, which are published in order. Each message
// without a key has its own value of this type.
type key struct {
	name        db.HeldKey
	destination *destination
	queue       []*message // sorted by position; without the messages of a call
	inCall      int        // number of messages in a call, or refused in a round that has not ended
	ready       bool       // the key is in retryKeys or freshKeys of its destination
	held        bool       // the table may contain later messages of the key, marked as held
	failed      bool       // the first message of the key has failed or was postponed
	index       int        // index in the heap of waiting keys, or -1
	due         time.Time

	postponedSince time.Time // since when RetryLater has postponed the first message of the key; zero if it has not
}

func (k *key) isIdle() bool { return len(k.queue) == 0 && k.inCall == 0 }

// call is one call of the Publisher.
type call struct {
	destination *destination
	messages    []*message
	began       time.Time
	loggedAt    time.Time // when the worker last logged that the call does not return
}

const (
	slowCall   = 100 * time.Millisecond
	maxBackoff = 30 * time.Second

	minKeyQueue = 16 // lower limit of keyRun, and of retryRoom while the queue has no retries
)

// destination is one destination of a Publisher, with its queue, its call in progress and its
// backoff. A Publisher that is not a Divider has one destination.
type destination struct {
	name   string
	topics []string // the topics of its messages in the queue and in the call
	call   *call    // the call in progress, or nil
	stale  bool     // the call began before a restart; until the call ends, the destination accepts no message

	// A destination is lagging if it had no room for the first message after the field position. The
	// ordinary reads, which serve all destinations, then skip its messages after position. A catch-up
	// read, which serves only lagging destinations, fetches them.
	lagging  bool
	position int64
	served   int64 // the number of the last catch-up read that began at its position

	retryKeys, freshKeys []*key // ready keys: those whose first message is marked as held in the table, and the others
	retries, fresh       int    // numbers of messages in the queue: those that are marked as held, and the others
	waiting              waitingKeys

	bytes  int // size of its messages in memory
	wanted int // size of a message for which there was no memory, or 0

	batch    int  // the maximum number of messages in a call
	minQueue int  // the minimum of queueLimit
	slow     bool // the last call was slow

	unnamed   int       // number of consecutive errors that name no message
	round     *round    // the current round of single calls, or nil
	turns     int       // how often compose was called during rounds
	retryAt   time.Time // the end of the backoff
	backoff   time.Duration
	downSince time.Time // since when the destination is unavailable; zero if it is available
	loggedAt  time.Time // when an error of the destination was last logged
}

// round is a series of calls with one message each, after errors that name no message.
type round struct {
	began                  time.Time
	tried, accepted, again int
	repeats                bool // begins with messages refused in the previous round before one was accepted
	refused                []refusal
}

type refusal struct {
	m     *message
	err   error
	early bool // the message was refused before the round accepted any message: an outage may have ended in between
}

// restart empties the queue. The destination keeps its backoff and its batch size.
func (d *destination) restart() {
	d.topics, d.retryKeys, d.freshKeys, d.waiting, d.retries, d.fresh, d.wanted = nil, nil, nil, nil, 0, 0, 0
	d.stale, d.lagging, d.position, d.round = d.call != nil, d.call != nil, 0, nil
	d.unnamed = min(d.unnamed, 1)
}

func (d *destination) isHealthy() bool {
	return d.unnamed == 0 && d.round == nil && d.backoff == 0 && d.downSince.IsZero()
}

// queueLimit returns the maximum number of messages in the queue. Messages that are held in the
// table do not count.
func (d *destination) queueLimit() int { return max(d.batch, d.minQueue) }

// keyRun returns how many messages of one due key a read fetches at most. See also keyLimit.
func (d *destination) keyRun() int { return max(d.queueLimit()/8, minKeyQueue) }

// retryRoom returns how many more messages of due keys the queue may take.
func (d *destination) retryRoom() int { return max(d.queueLimit()/2, minKeyQueue) - d.retries }

// markLagging records that the destination had no room for the message at position.
func (d *destination) markLagging(position int64) {
	if !d.lagging || position <= d.position {
		d.lagging, d.position = true, position-1
	}
}

// count adds n to the number of held messages in the queue if m is held, or else to the number of
// other messages.
func (d *destination) count(m *message, n int) {
	if m.held {
		d.retries += n
	} else {
		d.fresh += n
	}
}

// ready adds a key with messages to one of the two lists from which compose takes keys, at the
// front or at the end.
func (d *destination) ready(k *key, front bool) {
	if k.ready {
		return
	}
	k.ready = true
	list := &d.freshKeys
	if k.queue[0].held {
		list = &d.retryKeys
	}
	if front {
		*list = slices.Insert(*list, 0, k)
	} else {
		*list = append(*list, k)
	}
}

// compose takes the messages of the next call from the queue: retries first, up to half of the
// call, then fresh messages, then more retries. A retry is a message that is marked as held in the
// table. No two messages of a call have the same ID, because a PublishError identifies messages by
// their IDs.
func (d *destination) compose(size int, keepsOrder bool) []*message {
	var messages []*message
	ids := map[string]bool{}
	take := func(list *[]*key, limit int) {
		var skipped []*key // keys whose next message has the ID of another message of the call
		for len(*list) > 0 && len(messages) < limit {
			k := (*list)[0]
			*list = (*list)[1:]
			if k.ready = false; len(k.queue) == 0 || k.inCall > 0 {
				continue
			}
			n := 0
			for n < len(k.queue) && len(messages) < limit && !ids[k.queue[n].ID] && (n == 0 || keepsOrder) {
				m := k.queue[n]
				messages, ids[m.ID] = append(messages, m), true
				d.count(m, -1)
				n++
			}
			if k.inCall, k.queue = n, k.queue[n:]; n == 0 {
				skipped = append(skipped, k)
			}
		}
		for _, k := range slices.Backward(skipped) {
			d.ready(k, true)
		}
	}
	if d.round != nil { // every second call takes a fresh message, so that a round does not consist of retries alone
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

// adjustBatch doubles the size of the next call, up to limit, after a call that was at least half
// full. If a call to a destination of a Divider was slow, adjustBatch lowers the size to minQueue
// instead.
func (d *destination) adjustBatch(took time.Duration, messages int, divided bool, limit int) {
	if d.slow = divided && took > slowCall; d.slow {
		d.batch = min(d.batch, d.minQueue)
		return
	}
	if messages >= d.batch/2 {
		d.batch = min(2*d.batch, limit)
	}
}

// shouldLog reports whether to log err. At most one error is logged per maxBackoff.
func (d *destination) shouldLog(err error, now time.Time) bool {
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
