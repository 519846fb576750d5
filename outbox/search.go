package outbox

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/store"
)

const (
	mostMisses  = 32 // how many messages fail in a row before others are read
	mostUnheard = 8  // and as long as none was published at all, before there is a pause
	singles     = 4  // so many are tried alone after a failure, until the destination is known to be well
	calm        = 32 // after so many messages in a row that were published, none is looked for any more
)

// turnOfTrial is for how long messages are tried before those are read that have come meanwhile.
const turnOfTrial = time.Second / 2

// search is one round of a trial.
type search struct {
	*round
	*lines
	began time.Time
	next  []int       // the next message of the key of another one, 0 if there is none
	tried map[int]int // messages that have failed alone, and how many were published by then

	ever        bool // a message was published
	row, misses int  // how many were, or have failed, since one has failed, or was published
	last        error
	rest        time.Duration
}

// searchOf is a search in which the first message of each key is tried, in lines.
func searchOf(r *round) *search {
	s := &search{round: r, lines: &r.trial.lines, began: time.Now(), next: make([]int, len(r.messages)), tried: map[int]int{}, last: r.did.err}
	s.lines.clear()
	r.did.err, r.did.rest = nil, 0
	if len(r.failing) > 0 {
		s.began = s.began.Add(-r.took)
		s.leaveTurn()
		s.fault(&s.fresh, r.failing, s.last)
		s.remember()
		s.lines.clear()
	}
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
	slices.SortFunc(s.doubted.of, func(a, b int) int { return cmp.Compare(s.rank(a), s.rank(b)) })
	return s
}

func (s *search) rank(i int) int { return s.trial.doubted[s.messages[i].Seq] }

// lineOf returns the line of a key whose first message is this one, or nil if nothing is known of it.
func (s *search) lineOf(head int, key store.HeldKey) *line {
	place := s.messages[head].Seq
	_, isDoubted := s.trial.doubted[place]
	switch {
	case s.alone[place] != nil:
		return &s.found
	case s.trial.suspects[place] != nil:
		return &s.suspected
	case isDoubted:
		return &s.doubted
	case s.trial.known[key]:
		return &s.known
	}
	return nil
}

// pick chooses what is tried next. Messages of which none has failed come first: after a call with others that has failed, for as long as that has taken.
// What has failed alone comes last until a message was published.
func (s *search) pick() (*line, []int) {
	var l *line
	var part []int
	switch {
	case !s.ever:
		l, part = s.from(&s.goodTurn, &s.known, &s.fresh, &s.doubted)
	case time.Now().Before(s.goodUntil):
		l, part = s.from(&s.goodTurn, &s.known, &s.fresh)
	}
	if l != nil {
		return l, part
	}
	return s.from(&s.turn, &s.known, &s.fresh, &s.doubted, &s.known, &s.fresh, &s.doubted, &s.known, &s.fresh, &s.suspected, &s.known, &s.doubted, &s.found)
}

// from draws from the first line in turn in which there is something.
func (s *search) from(turn *int, lines ...*line) (*line, []int) {
	for range lines {
		l := lines[*turn%len(lines)]
		*turn++
		if part := s.draw(l); len(part) > 0 {
			return l, part
		}
	}
	return nil, nil
}

// draw takes messages from a line that are still to be tried. One that has failed alone has to wait until another one was published: to try it at
// once says nothing new. Behind a failure it is one at a time, until so many calls of one have succeeded that a failure says something of its message.
func (s *search) draw(l *line) (part []int) {
	most := l.most
	if s.row < singles && s.trial.isUnwell() {
		most = 1
	}
	for n := len(l.of); n > 0 && len(part) < most; n-- {
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
	isGood := l == &s.known || l == &s.fresh
	if s.did.err != nil && !isGood {
		s.leaveTurn()
	}
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
	case err == nil:
		if isGood || l == &s.doubted {
			l.went(went, s.config.BatchSize)
		}
	default:
		s.miss(err)
		s.fault(l, part, err)
	}
	s.rest = max(s.rest, s.did.rest)
	s.did.err, s.did.rest = nil, 0
}

// leaveTurn leaves to known and fresh ones as much time as a call of others has taken.
func (s *search) leaveTurn() { s.goodUntil, s.goodTurn = time.Now().Add(s.took), 0 }

// fault notes that a call has failed, and not because of which message. Those of which nothing is known are in doubt: they are tried next, fewer at a time.
func (s *search) fault(l *line, part []int, err error) {
	l.failed(len(part))
	var doubted, known []int
	for _, i := range part {
		switch key := keyOf(&s.messages[i]); {
		case s.dealt[i] || s.later[key]:
		case s.trial.known[key]:
			known = append(known, i)
		default:
			doubted = append(doubted, i)
		}
	}
	if len(doubted) == 0 {
		doubted = known
	}
	for _, i := range doubted {
		delete(s.trial.known, keyOf(&s.messages[i]))
	}
	switch {
	case len(part) > 1:
		if doubted = mixed(doubted); l == &s.doubted || len(s.doubted.of) == 0 {
			s.doubted.failed(len(doubted))
			s.doubted.of = append(doubted, s.doubted.of...)
		} else {
			s.doubted.of = append(s.doubted.of, doubted...)
		}
	case len(doubted) == 1:
		s.tried[part[0]] = s.trial.went
		if !s.trial.fail(s.messages[part[0]].Seq, err, s.took) {
			s.suspected.of = append(s.suspected.of, part[0])
		}
	}
}

// went notes which messages of a call were published. Those that are next of their keys are to be tried.
func (s *search) went(part []int, published []int64) {
	for _, place := range published {
		s.trial.outlive(place, s.alone[place])
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
	return s.misses >= most || s.rest > 0 || s.isCalm() || time.Since(s.began) > turnOfTrial
}

// isCalm reports whether so many messages have left in a row that the others may leave together again.
func (s *search) isCalm() bool { return s.row >= calm && len(s.suspected.of)+len(s.doubted.of) == 0 }

// end decides whether there is another round, and whether the destination is left alone before that.
func (s *search) end(ctx context.Context) {
	t := &s.trial
	s.remember()
	convicted, suspected := s.convict(ctx)
	switch {
	case s.answered && suspected+len(t.doubted) == 0 && (len(s.fresh.of)+len(s.known.of) == 0 || s.isCalm()):
		t.on, t.rounds, s.size = false, 0, 1
	case s.answered || convicted > 0:
		t.on, t.rounds = true, 0
	default:
		t.on = true
		t.rounds++
		s.did.err, s.did.rest = s.last, s.rest
	}
}

// remember keeps for the next round which messages are in doubt, and in which order.
func (s *search) remember() {
	s.trial.doubted = make(map[int64]int, len(s.doubted.of))
	for n, i := range s.doubted.of {
		s.trial.doubted[s.messages[i].Seq] = n
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
			f.alone, s.loneAt = &lone{misses: as.misses}, time.Now()
			s.space(f, as.took)
			s.observeFound(ctx, f)
			delete(s.trial.suspects, place)
			convicted++
		}
	}
	return convicted, suspected
}
