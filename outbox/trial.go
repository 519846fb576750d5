package outbox

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/internal/store"
)

const (
	mostMisses  = 32 // how many messages fail in a row before others are read
	mostUnheard = 8  // and as long as none was published at all, before there is a pause
	calm        = 32 // after so many messages in a row that were published, none is looked for any more
)

// turnOfTrial is for how long messages are tried before those are read that have come meanwhile.
const turnOfTrial = time.Second / 2

// publish hands a batch to the Publisher.
func (b *batch) publish(ctx context.Context, c *caller) *outcome {
	r := &round{batch: b, caller: c, stuck: map[store.HeldKey]bool{}, later: map[store.HeldKey]bool{}, dealt: make([]bool, len(b.messages)), did: &outcome{}}
	if !c.trial.on {
		r.all(ctx)
	}
	if c.trial.on || r.isInDoubt() {
		r.try(ctx)
	}
	r.close()
	return r.did
}

// isInDoubt reports whether a call has failed and it is not known why.
func (r *round) isInDoubt() bool {
	return r.did.err != nil && r.did.hung == nil && !errors.Is(r.did.err, errLost) && !isAway(r.did.err)
}

// try publishes few messages at a time: one at first, and more as long as no call fails.
func (r *round) try(ctx context.Context) {
	s := searchOf(r)
	for ctx.Err() == nil && !s.isOver() {
		part := s.pick()
		if len(part) == 0 {
			break
		}
		if s.publish(ctx, part); r.did.hung != nil || errors.Is(r.did.err, errLost) {
			return
		}
	}
	s.end(ctx)
}

// searchOf is a search in which the first message of each key is tried. Those of other topics than the first one's come early: it may be the topic.
// Then come the newest and any others in turn, so that bad messages in a row are not all tried before the first one behind or before them. One that was found before says nothing of the destination: it waits until the trial is over, if there are others.
func searchOf(r *round) *search {
	s := &search{round: r, began: time.Now(), next: make([]int, len(r.messages)), most: 1, last: r.did.err}
	r.did.err, r.did.rest = nil, 0
	last, topics := map[store.HeldKey]int{}, map[string]bool{}
	var late, found []int
	for i := range r.messages {
		m := &r.messages[i]
		key := keyOf(m)
		before, isBehind := last[key]
		last[key] = i
		switch {
		case isBehind:
			s.next[before] = i
		case r.dealt[i]:
		case r.alone[m.Seq] != nil:
			found = append(found, i)
		case r.trial.suspects[m.Seq] != nil:
			s.suspected = append(s.suspected, i)
		case topics[m.Topic]:
			late = append(late, i)
		default:
			topics[m.Topic], s.fresh = true, append(s.fresh, i)
		}
	}
	if s.fresh = append(s.fresh, mixed(late)...); len(s.fresh)+len(s.suspected) == 0 {
		s.fresh = found
	}
	return s
}

// mixed takes the last and any other in turn.
func mixed(late []int) []int {
	mixed, any := make([]int, 0, len(late)), rand.Perm(len(late))
	taken := make([]bool, len(late))
	take := func(n int) {
		if !taken[n] {
			taken[n], mixed = true, append(mixed, late[n])
		}
	}
	for n := range late {
		take(len(late) - 1 - n)
		take(any[n])
	}
	return mixed
}

// search is one round of a trial.
type search struct {
	*round
	began     time.Time
	fresh     []int // the first messages of their keys, by index, in the order in which they are tried
	suspected []int // those that have failed alone
	next      []int // the next message of the key of another one, 0 if there is none

	most        int  // how many are tried at a time
	ever        bool // a message was published
	answered    bool // or was named
	again       bool // what was picked last is one that is suspected, if there was one
	row, misses int  // how many were, or have failed, since one has failed, or was published
	last        error
	rest        time.Duration
}

// pick chooses what is tried next: once a message was published, one that is suspected and some that are not in turn.
func (s *search) pick() []int {
	if s.again = s.ever && !s.again; s.again {
		if part := s.draw(&s.suspected, 1); len(part) > 0 {
			return part
		}
	}
	if part := s.draw(&s.fresh, s.most); len(part) > 0 {
		return part
	}
	return s.draw(&s.suspected, 1)
}

// draw takes up to n messages from a line that are still to be tried.
func (s *search) draw(line *[]int, n int) (part []int) {
	for len(*line) > 0 && len(part) < n {
		i := (*line)[0]
		*line = (*line)[1:]
		if m := &s.messages[i]; !s.dealt[i] && !s.stuck[keyOf(m)] && !s.later[keyOf(m)] && !s.trial.isGuilty(m.Seq) {
			part = append(part, i)
		}
	}
	return part
}

// publish makes a call, and notes what that says of its messages and of others.
func (s *search) publish(ctx context.Context, part []int) {
	published, failed := len(s.did.published), len(s.did.failed)
	s.part(ctx, part)
	err := s.did.err
	if s.did.hung != nil || errors.Is(err, errLost) {
		return
	}
	went := len(s.did.published) - published
	s.answered = s.answered || went > 0 || len(s.did.failed) > failed
	for _, place := range s.did.published[published:] {
		s.trial.outlive(place)
	}
	if went > 0 {
		if len(part) == 1 {
			s.trial.succeed()
		}
		s.ever, s.misses = true, 0
		s.row += went
	}
	for _, i := range part {
		if s.dealt[i] {
			delete(s.trial.suspects, s.messages[i].Seq)
			if s.next[i] > 0 {
				s.fresh = append(s.fresh, s.next[i])
			}
		}
	}
	switch {
	case err == nil && went == 0 && len(s.did.failed) == failed:
		s.miss(ErrUnsent)
	case err == nil:
		s.most = min(2*s.most, s.config.BatchSize)
	case len(part) > 1: // it is one of them
		s.miss(err)
		s.fresh, s.most = append(part, s.fresh...), max(len(part)/4, 1)
	default:
		s.miss(err)
		s.most = 1
		if !s.trial.fail(s.messages[part[0]].Seq, err) {
			s.suspected = append(s.suspected, part[0])
		}
	}
	s.rest = max(s.rest, s.did.rest)
	s.did.err, s.did.rest = nil, 0
}

func (s *search) miss(err error) {
	s.last, s.row = err, 0
	s.misses++
}

// isOver reports whether it is time to read what has come meanwhile, or to leave the destination alone. Bad messages that are left to themselves
// cannot be told from a destination that is away: as long as there are others among which to find them, it is worth looking.
func (s *search) isOver() bool {
	most := mostMisses
	if !s.ever {
		most = min(2<<min(s.trial.rounds, 8), mostUnheard)
	}
	enough := s.answered || s.misses >= 2
	return s.misses >= most || s.rest > 0 || s.isCalm() || enough && time.Since(s.began) > turnOfTrial
}

// isCalm reports whether so many messages have left in a row that the others may leave together again.
func (s *search) isCalm() bool { return s.row >= calm && len(s.suspected) == 0 }

// end decides whether there is another round, and whether the destination is left alone before that.
func (s *search) end(ctx context.Context) {
	t := &s.trial
	convicted, suspected := s.convict(ctx)
	switch {
	case s.answered && suspected == 0 && (len(s.fresh) == 0 || s.isCalm()):
		t.on, t.rounds, s.size = false, 0, 1
	case s.answered || convicted > 0:
		t.on, t.rounds = true, 0
	default:
		t.on = true
		t.rounds++
		s.did.err, s.did.rest = s.last, s.rest
	}
}

// convict holds back the messages that are to blame. It counts them and those that are suspected still.
func (s *search) convict(ctx context.Context) (convicted, suspected int) {
	for i := range s.messages {
		place := s.messages[i].Seq
		as := s.trial.suspects[place]
		switch {
		case as == nil || s.dealt[i]:
		case !s.trial.isGuilty(place):
			suspected++
		default:
			f := s.fail(i, as.err)
			f.alone = &lone{}
			s.observeFound(ctx, f)
			delete(s.trial.suspects, place)
			convicted++
		}
	}
	return convicted, suspected
}
