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
	held   bool // the table has it marked as held
	repeat bool // a Publisher may have been given it before
}

// key is a unit of order: the messages of a topic and key, or one message without a key.
type key struct {
	name        db.HeldKey
	destination *destination
	queue       []*message // in order of position; without the messages of a call
	inCall      int        // messages in a call, or refused in a round that has not ended
	ready       bool       // in a list of its destination
	held        bool       // the table may have held messages of it, after those in memory
	failed      bool       // its first message has failed or was postponed
	index       int        // in the heap of waiting keys, or -1
	due         time.Time

	postponedSince time.Time // since when RetryLater postpones its first message
}

func (k *key) isIdle() bool { return len(k.queue) == 0 && k.inCall == 0 }

// call is one call of the Publisher.
type call struct {
	destination *destination
	messages    []*message
	began       time.Time
	loggedAt    time.Time // when the worker last logged that it does not return
}

const (
	slowCall   = 100 * time.Millisecond
	maxBackoff = 30 * time.Second

	minKeyQueue = 16 // messages of a key in memory
)

// destination is where messages go, with its queue, its call and its backoff. A Publisher that is
// not a Divider has one.
type destination struct {
	name   string
	topics []string // topics whose messages are in its queue or in its call
	call   *call    // in progress, or nil
	stale  bool     // the call began before a restart: the destination accepts no message until the call ends

	// A destination is lagging if it has no room for messages beyond position. Then reads of all
	// destinations skip later messages of it. A catch-up read continues from position.
	lagging  bool
	position int64
	served   int64 // the number of its last catch-up read

	retryKeys, freshKeys []*key // ready keys, by whether the table has their first message marked as held
	retries, fresh       int    // messages in the queue: those that the table has marked as held, and others
	waiting              waitingKeys

	bytes  int // of its messages in memory
	wanted int // bytes of a message for which there was no memory, or 0

	batch    int  // the maximum number of messages in a call
	minQueue int  // the queue limit is at least this
	slow     bool // the last call was slow

	unnamed   int       // errors in a row that name no message
	round     *round    // of single calls, or nil
	turns     int       // number of single calls
	retryAt   time.Time // end of the backoff
	backoff   time.Duration
	downSince time.Time // since when it is unavailable
	loggedAt  time.Time // when its last error was logged
}

// round is a round of single calls: calls with one message each, after errors that name no message.
type round struct {
	began                  time.Time
	tried, accepted, again int
	repeats                bool // it first retries messages that the round before refused before its first accepted one
	refused                []refusal
}

type refusal struct {
	m     *message
	err   error
	early bool // the round had accepted no message before: an outage may have ended since then
}

// restart empties the queue. It keeps the state of the destination itself.
func (d *destination) restart() {
	d.topics, d.retryKeys, d.freshKeys, d.waiting, d.retries, d.fresh, d.wanted = nil, nil, nil, nil, 0, 0, 0
	d.stale, d.lagging, d.position, d.round = d.call != nil, d.call != nil, 0, nil
	d.unnamed = min(d.unnamed, 1)
}

func (d *destination) isHealthy() bool {
	return d.unnamed == 0 && d.round == nil && d.backoff == 0 && d.downSince.IsZero()
}

// queueLimit is the maximum number of messages in the queue, without those that the table has
// marked as held.
func (d *destination) queueLimit() int { return max(d.batch, d.minQueue) }

// keyRun is how many messages of a key the queue holds, and a read of a due key returns.
func (d *destination) keyRun() int { return max(d.queueLimit()/8, minKeyQueue) }

// retryRoom is how many more messages of due keys the queue may have.
func (d *destination) retryRoom() int { return max(d.queueLimit()/2, minKeyQueue) - d.retries }

// markLagging says that the message at a position was not accepted.
func (d *destination) markLagging(position int64) {
	if !d.lagging || position <= d.position {
		d.lagging, d.position = true, position-1
	}
}

// count adds n to the number of messages in the queue that are of the same kind as m.
func (d *destination) count(m *message, n int) {
	if m.held {
		d.retries += n
	} else {
		d.fresh += n
	}
}

// ready adds a key with messages to the list from which compose takes keys.
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
// call, then fresh messages, then more retries. No two messages of a call have the same ID, because
// a Publisher names messages by their IDs.
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
	if d.round != nil { // alternate, so that a round does not consist of retries alone
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

// adjustBatch doubles the size of calls while they are fast and well filled. Slow calls of a
// Divider reset it.
func (d *destination) adjustBatch(took time.Duration, messages int, divided bool, limit int) {
	if d.slow = divided && took > slowCall; d.slow {
		d.batch = min(d.batch, d.minQueue)
		return
	}
	if messages >= d.batch/2 {
		d.batch = min(2*d.batch, limit)
	}
}

// shouldLog reports whether to log an error: the first one, and then at most one per maxBackoff.
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
