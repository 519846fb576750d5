package outbox

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

const (
	mostMisses = 32 // how many messages fail alone before there is a pause
	mostAgain  = 2  // after so many failures since another message was published, a suspect is to blame
	calm       = 32 // after so many messages in a row that were published, none is looked for any more
)

// publish hands a batch to the Publisher.
func (b *batch) publish(ctx context.Context, c *caller) *outcome {
	r := &round{batch: b, caller: c, stuck: map[store.HeldKey]bool{}, later: map[store.HeldKey]bool{}, dealt: make([]bool, len(b.messages)), did: &outcome{behind: b.behind}}
	if c.trial.on {
		r.try(ctx)
	} else {
		r.all(ctx)
	}
	r.close()
	return r.did
}

// try publishes messages one at a time. More of them are tried from one round to the next, as long as all fail.
func (r *round) try(ctx context.Context) {
	t, began := &r.trial, time.Now()
	if t.suspects == nil {
		t.suspects = map[int64]*suspect{}
	}
	heads := r.heads()
	went, ever, found, row := false, false, false, 0
	var last error
	var rest time.Duration
	for misses, most := 0, min(2<<min(t.rounds, 8), mostMisses); misses < most && ctx.Err() == nil; {
		i, ok := r.pick(heads, went)
		if !ok || r.isCalm(row, began) && !r.suspectsLeft(heads) || misses >= 2 && time.Since(began) > r.config.PublishTimeout {
			break
		}
		if misses > 0 && txn.Sleep(ctx, r.config.MinPause) != nil {
			break
		}
		published := len(r.did.published)
		r.part(ctx, []int{i})
		switch {
		case r.did.hung != nil || errors.Is(r.did.err, errLost):
			return
		case len(r.did.published) > published:
			t.outlive(r.messages[i].Seq)
			went, ever, misses = true, true, 0
			row++
		case r.did.err == nil && r.dealt[i]: // it was named
			delete(t.suspects, r.messages[i].Seq)
		case r.miss(i, went):
			went, found, row = false, true, 0
		default:
			last, rest = r.did.err, max(rest, r.did.rest)
			if last == nil {
				last = ErrUnsent
			}
			went, row = false, 0
			misses++
		}
		r.did.err, r.did.rest = nil, 0
		if rest > 0 { // the destination asks to be left alone
			break
		}
	}
	if ever || found {
		t.on, t.rounds, r.size = false, 0, 1
		return
	}
	t.rounds++
	r.did.err, r.did.rest = last, rest
}

// isCalm reports whether so many messages have left in a row that the others may leave together again. Bad messages that are left to themselves
// cannot be told from a destination that is away: as long as there are others among which to find them, it is worth looking.
func (r *round) isCalm(row int, began time.Time) bool {
	return row >= calm || row > 0 && time.Since(began) > r.config.PublishTimeout
}

// heads returns the first message of each key. Those of other topics than the first one's come early: it may be the topic. The others come in no
// order, so that bad messages in a row are not all tried before the first one behind them. One that has failed alone before says nothing of its
// destination: it waits until the trial is over, if there are others.
func (r *round) heads() []int {
	keys, topics := map[store.HeldKey]bool{}, map[string]bool{}
	var early, late, found []int
	for i := range r.messages {
		m := &r.messages[i]
		key := keyOf(m)
		if keys[key] {
			continue
		}
		keys[key] = true
		if r.alone[m.Seq] {
			found = append(found, i)
			continue
		}
		if topics[m.Topic] {
			late = append(late, i)
		} else {
			topics[m.Topic], early = true, append(early, i)
		}
	}
	rand.Shuffle(len(late), func(i, j int) { late[i], late[j] = late[j], late[i] })
	if len(early) == 0 {
		return found
	}
	return append(early, late...)
}

// pick chooses what is tried next: just after another message was published one that is suspected, and otherwise one that is not.
func (r *round) pick(heads []int, went bool) (int, bool) {
	fresh, tried := -1, -1
	for _, i := range heads {
		s := r.trial.suspects[r.messages[i].Seq]
		switch {
		case r.dealt[i] || r.stuck[keyOf(&r.messages[i])] || r.later[keyOf(&r.messages[i])]:
		case s == nil && fresh < 0:
			fresh = i
		case s != nil && (tried < 0 || s.tries < r.trial.suspects[r.messages[tried].Seq].tries):
			tried = i
		}
	}
	if fresh >= 0 && (!went || tried < 0) {
		return fresh, true
	}
	return tried, tried >= 0
}

func (r *round) suspectsLeft(heads []int) bool {
	for _, i := range heads {
		if !r.dealt[i] && r.trial.suspects[r.messages[i].Seq] != nil {
			return true
		}
	}
	return false
}

// miss notes that a message has failed alone, and reports whether it is to blame.
func (r *round) miss(i int, went bool) bool {
	place := r.messages[i].Seq
	s := r.trial.suspects[place]
	if s == nil {
		s = &suspect{}
		r.trial.suspects[place] = s
	}
	s.tries++
	if s.outlived {
		s.again++
	}
	if s.outlived && (went || s.again > mostAgain) {
		r.blame(i)
		delete(r.trial.suspects, place)
		return r.dealt[i]
	}
	return false
}
