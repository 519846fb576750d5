package outbox

import (
	"time"

	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// unwritten is what the table does not say yet: which messages have failed or are behind one that has. It is written down in portions, so that
// the relay reads on meanwhile. The order of a key rests on three rules:
//
//   - What concerns a key is written down in the order in which it came about. So no message is held in the table while an earlier one of its key is not.
//   - A key of which something is unwritten is never due: see holds. The table does not have all that is held back of it.
//   - A message that is here is not read again, although the table has it among those that are not held back.
//
// If the relay dies, it is forgotten: the next relay reads these messages in their order, and finds out again.
type unwritten struct {
	line   []entry
	places map[int64]bool
	octets int // of reasons
}

// entry is a message that is to be held back.
type entry struct {
	place         int64
	key           store.HeldKey
	failed        bool // otherwise it is behind one that has
	due           time.Time
	count         int
	class, reason string
}

const (
	writtenAtATime = heldAtATime
	writtenBeside  = writtenAtATime / 16 // while there is more to read
	mostUnwritten  = 250_000             // what is beyond is written down at once
	mostReasons    = 64 << 20            // octets: beyond, all is
)

// portion is how many entries are written down next.
func (u *unwritten) portion(more bool) int {
	n := writtenAtATime
	switch {
	case u.octets > mostReasons:
		return len(u.line)
	case more:
		n = writtenBeside
	}
	return min(max(n, len(u.line)-mostUnwritten), len(u.line))
}

func (u *unwritten) fail(f *failure, due time.Time) {
	e := entry{place: f.message.Seq, key: keyOf(&f.message), failed: true, due: due, count: f.count,
		class: deadletter.ClassOf(f.err), reason: deadletter.ReasonOf(f.err)}
	if n := len(u.line); n > 0 && u.line[n-1].reason == e.reason { // they are many, and often alike
		e.reason = u.line[n-1].reason
	} else {
		u.octets += len(e.reason)
	}
	u.add(e)
}

func (u *unwritten) add(e entry) {
	if u.places == nil {
		u.places = map[int64]bool{}
	}
	u.line, u.places[e.place] = append(u.line, e), true
}

// requests writes the first n down. One message has no more than one entry, because it is not read again before that is written down.
func (u *unwritten) requests(n int, now time.Time) []txn.Request {
	var blame store.BlameMessages
	var behind store.HoldMessages
	for i := range u.line[:n] {
		e := &u.line[i]
		if !e.failed {
			behind.Seqs = append(behind.Seqs, e.place)
			continue
		}
		blame.Seqs, blame.Pauses = append(blame.Seqs, e.place), append(blame.Pauses, max(e.due.Sub(now), 0))
		blame.Counts = append(blame.Counts, e.count)
		blame.Classes, blame.Reasons = append(blame.Classes, e.class), append(blame.Reasons, e.reason)
	}
	var requests []txn.Request
	if len(blame.Seqs) > 0 {
		requests = append(requests, blame)
	}
	if len(behind.Seqs) > 0 {
		requests = append(requests, behind)
	}
	return requests
}

// take removes the first n, which are written down.
func (u *unwritten) take(n int) []entry {
	taken := u.line[:n:n]
	for i := range taken {
		delete(u.places, taken[i].place)
	}
	if u.line = u.line[n:]; len(u.line) == 0 {
		u.line, u.octets = nil, 0
	}
	return taken
}
