package outbox

import (
	"context"
	"errors"
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

// search is one round of a trial.
type search struct {
	*round
	began                          time.Time
	known, fresh, suspected, found line
	next                           []int // the next message of the key of another one, 0 if there is none
	turn                           int
	tried                          map[int]int // messages that have failed alone, and how many were published by then

	ever        bool // a message was published
	row, misses int  // how many were, or have failed, since one has failed, or was published
	last        error
	rest        time.Duration
}

// searchOf is a search in which the first message of each key is tried, in three lines of which each has its turn:
//
//   - known are keys of which a message was published in this trial, and none has failed since. No bad message of another key is in their line, so
//     they wait for none: a call of theirs that fails has a bad one of theirs in it, and it takes calls in proportion to log n to find that one, once.
//   - fresh are those of which nothing is known. They are tried in the order of their newest message and of any one in turn, so that one of n tries is
//     about a good one if one of n messages that wait is good. Each is tried once, and is known or suspected then.
//   - suspected have failed alone, and found are known to be bad. Both wait until a message was published.
func searchOf(r *round) *search {
	s := &search{round: r, began: time.Now(), next: make([]int, len(r.messages)), tried: map[int]int{}, last: r.did.err}
	s.known.most, s.fresh.most, s.suspected.most, s.found.most = 1, 1, 1, 1
	r.did.err, r.did.rest = nil, 0
	first, last, topics := map[store.HeldKey]int{}, map[store.HeldKey]int{}, map[string]int{}
	var ofTopics, others []int
	for i := range r.messages {
		m := &r.messages[i]
		if r.dealt[i] {
			continue
		}
		key := keyOf(m)
		head, isBehind := first[key]
		if isBehind {
			s.next[last[key]] = i
		} else {
			head, first[key] = i, i
		}
		last[key] = i
		switch line := s.lineOf(head, key); {
		case line == nil:
			topic, isMet := topics[m.Topic]
			if !isMet {
				topic, topics[m.Topic] = head, head
			}
			if topic == head { // it may be the topic that is bad
				ofTopics = append(ofTopics, head)
			} else {
				others = append(others, head)
			}
		case !isBehind:
			line.of = append(line.of, head)
		}
	}
	s.fresh.of = inTurn(mixed(ofTopics), mixed(others))
	return s
}

// lineOf returns the line of a key whose first message is this one, or nil if nothing is known of it.
func (s *search) lineOf(head int, key store.HeldKey) *line {
	place := s.messages[head].Seq
	switch {
	case s.alone[place] != nil:
		return &s.found
	case s.trial.suspects[place] != nil:
		return &s.suspected
	case s.trial.known[key]:
		return &s.known
	}
	return nil
}

// pick chooses what is tried next. What has failed before comes last until a message was published.
func (s *search) pick() (*line, []int) {
	lines := []*line{&s.known, &s.fresh, &s.suspected, &s.known, &s.fresh, &s.found}
	for range lines {
		l := lines[s.turn]
		s.turn = (s.turn + 1) % len(lines)
		if s.ever || l == &s.known || l == &s.fresh {
			if part := s.draw(l); len(part) > 0 {
				return l, part
			}
		}
	}
	for _, l := range lines {
		if part := s.draw(l); len(part) > 0 {
			return l, part
		}
	}
	return nil, nil
}

// draw takes messages from a line that are still to be tried. One that has failed alone has to wait until another one was published: to try it at
// once says nothing new.
func (s *search) draw(l *line) (part []int) {
	for n := len(l.of); n > 0 && len(part) < l.most; n-- {
		i := l.of[0]
		l.of = l.of[1:]
		went, failed := s.tried[i]
		switch m := &s.messages[i]; {
		case s.dealt[i], s.stuck[keyOf(m)], s.later[keyOf(m)], s.trial.isGuilty(m.Seq):
		case failed && went == s.trial.went:
			l.of = append(l.of, i)
		default:
			part = append(part, i)
		}
	}
	return part
}

// publish makes a call, and notes what that says of its messages and of others.
func (s *search) publish(ctx context.Context, l *line, part []int) {
	published, failed := len(s.did.published), len(s.did.failed)
	s.part(ctx, part)
	if l == &s.found {
		s.blame(ctx, part[0])
	}
	err := s.did.err
	if s.did.hung != nil || errors.Is(err, errLost) {
		return
	}
	went := len(s.did.published) - published
	s.went(part, s.did.published[published:])
	switch {
	case l == &s.found && went == 0:
		s.misses++ // it says nothing of the destination
	case err == nil && went == 0 && len(s.did.failed) == failed:
		s.miss(ErrUnsent)
	case err == nil && (l == &s.known || l == &s.fresh):
		l.most = min(2*l.most, s.config.BatchSize)
	case err == nil:
	case len(part) > 1: // it is one of them
		s.miss(err)
		l.of, l.most = append(part, l.of...), max(len(part)/4, 1)
	default:
		s.miss(err)
		l.most, s.tried[part[0]] = 1, s.trial.went
		delete(s.trial.known, keyOf(&s.messages[part[0]]))
		if !s.trial.fail(s.messages[part[0]].Seq, err) {
			s.suspected.of = append(s.suspected.of, part[0])
		}
	}
	s.rest = max(s.rest, s.did.rest)
	s.did.err, s.did.rest = nil, 0
}

// went notes which messages of a call were published. Those that are next of their keys are to be tried.
func (s *search) went(part []int, published []int64) {
	for _, place := range published {
		s.trial.outlive(place)
	}
	if len(published) > 0 {
		if len(part) == 1 {
			s.trial.succeed()
		}
		s.ever, s.misses = true, 0
		s.row += len(published)
	}
	for _, i := range part {
		if !s.dealt[i] {
			continue
		}
		delete(s.trial.suspects, s.messages[i].Seq)
		if key := keyOf(&s.messages[i]); key.Key != "" && !s.stuck[key] {
			s.trial.know(key)
		}
		if s.next[i] > 0 {
			s.known.of = append(s.known.of, s.next[i])
		}
	}
}

func (s *search) miss(err error) {
	s.last, s.row = err, 0
	s.misses++
}

// isOver reports whether it is time to read what has come meanwhile, or to leave the destination alone. Bad messages that are left to themselves
// cannot be told from a destination that is away: as long as there are others among which to find them, it is worth looking.
func (s *search) isOver() bool {
	most := mostMisses
	if !s.isThere() {
		most = min(2<<min(s.trial.rounds, 8), mostUnheard)
	}
	enough := s.answered || s.misses >= 2
	return s.misses >= most || s.rest > 0 || s.isCalm() || enough && time.Since(s.began) > turnOfTrial
}

// isCalm reports whether so many messages have left in a row that the others may leave together again.
func (s *search) isCalm() bool { return s.row >= calm && len(s.suspected.of) == 0 }

// end decides whether there is another round, and whether the destination is left alone before that.
func (s *search) end(ctx context.Context) {
	t := &s.trial
	convicted, suspected := s.convict(ctx)
	switch {
	case s.answered && suspected == 0 && (len(s.fresh.of)+len(s.known.of) == 0 || s.isCalm()):
		t.on, t.rounds, t.known, s.size = false, 0, nil, 1
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
			f.alone, s.loneAt = &lone{}, time.Now()
			s.observeFound(ctx, f)
			delete(s.trial.suspects, place)
			convicted++
		}
	}
	return convicted, suspected
}
