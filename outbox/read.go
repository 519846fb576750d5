package outbox

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/db"
)

// reading is what a transaction reads: keys that are due, and a portion of what is not held.
type reading struct {
	keys     []*key // with their queries in held
	held     *db.ReadHeld
	list     *db.ListWriters
	read     *db.ReadMessages
	catching []*destination // for which it is read from the position of the first; nil for all
}

// plan returns what is to be read now, or nil. A poll says that there may be something new.
func (s *scheduler) plan(now time.Time, poll bool) *reading {
	if s.stopping {
		return nil
	}
	p := &reading{}
	s.planDue(p, now)
	catching := s.lagging()
	if all := s.readsAll(now) && (s.full || poll); len(catching) > 0 && (s.catchUpNext || !all) {
		s.catchUpNext = false
		s.planCatching(p, catching)
	} else if all {
		s.catchUpNext = true
		p.list, p.read = s.progress.next(now)
		p.read.Topics = s.busyTopics()
		s.size(p.read, s.readScale[0])
	}
	if p.held == nil && p.read == nil {
		return nil
	}
	return p
}

// readsAll reports whether there is any use in a read of all.
func (s *scheduler) readsAll(now time.Time) bool {
	if s.divide != nil {
		return true
	}
	d := s.destinations[""]
	return d == nil || !d.stale && d.fresh < d.size && (d.fresh == 0 || !now.Before(d.retryAt))
}

func (s *scheduler) size(read *db.ReadMessages, wide int) {
	read.Room, read.Octets = s.config.BatchSize*s.config.Streams*wide, s.config.octetsAtATime()
}

// busyTopics are topics whose destinations take nothing, or took less than half of what the last read had for them, because a key has
// very many messages. A read of all returns their messages without payloads.
func (s *scheduler) busyTopics() (topics []string) {
	if s.divide == nil {
		return nil
	}
	for topic, d := range s.byTopic {
		if len(topics) < maxTopics && (d.behind || d.fresh >= d.share() || 2*d.marked > d.offered) {
			topics = append(topics, topic)
		}
	}
	return topics
}

// lagging returns destinations that are behind and have room, the one first that has waited for the longest time. The others are
// those whose positions are in its read.
func (s *scheduler) lagging() (catching []*destination) {
	for _, d := range s.destinations {
		if d.behind && !d.stale && d.fresh <= d.share()/2 && s.mayTake(d) {
			catching = append(catching, d)
		}
	}
	if len(catching) == 0 {
		return nil
	}
	slices.SortFunc(catching, func(a, b *destination) int { return cmp.Compare(a.served, b.served) })
	first, topics := catching[0], 0
	return slices.DeleteFunc(catching, func(d *destination) bool {
		if d != first && (d.position < first.position || topics+len(d.topics) > maxTopics) {
			return true
		}
		topics += len(d.topics)
		return false
	})
}

func (s *scheduler) planCatching(p *reading, catching []*destination) {
	p.catching, p.read = catching, s.progress.from(catching[0].position)
	p.read.Only = true
	for _, d := range catching {
		p.read.Topics = append(p.read.Topics, d.topics...)
	}
	s.catchUpReads++
	catching[0].served = s.catchUpReads
	s.size(p.read, s.readScale[1])
}

// planDue takes keys that are due, as many as their destinations have room for.
func (s *scheduler) planDue(p *reading, now time.Time) {
	var read *db.ReadHeld
	limit := maxDue
	if s.divide == nil && s.full {
		limit /= 4
	}
	for _, d := range s.destinations {
		if d.stale || len(d.waiting) == 0 || now.Before(d.retryAt) || !s.mayTake(d) {
			continue
		}
		for room := min(s.dueRoom(d), limit); room > 0 && len(d.waiting) > 0 && !d.waiting[0].due.After(now); {
			k := heap.Pop(&d.waiting).(*key)
			if to := s.destination(k.name.Topic); to != d { // the Divider has changed its answer
				k.to = to
				s.pushWaiting(k)
				continue
			}
			if read == nil {
				read = &db.ReadHeld{Octets: s.config.octetsAtATime()}
			}
			run := 1
			if !k.failed && k.name.Key != "" {
				run = min(room, max(d.share()/8, minKeyShare))
			}
			read.Keys, read.Runs, p.keys = append(read.Keys, k.name), append(read.Runs, run), append(p.keys, k)
			room, limit = room-run, limit-run
		}
	}
	p.held = read
}

// dueRoom is how many messages of due keys a destination may still have in its queue.
func (s *scheduler) dueRoom(d *destination) int {
	return max(d.share()/2, minKeyShare) - d.retries
}

// wake returns when there may be something to do without an event, at most at a limit.
func (s *scheduler) wake(now, limit time.Time) time.Time {
	for _, d := range s.destinations {
		at := limit
		if d.call == nil && (d.fresh+d.retries > 0 || d.behind) && now.Before(d.retryAt) {
			at = d.retryAt
		}
		if len(d.waiting) > 0 && !d.stale && s.dueRoom(d) > 0 && s.mayTake(d) {
			due := d.waiting[0].due
			if d.retryAt.After(due) {
				due = d.retryAt
			}
			if due.Before(at) {
				at = due
			}
		}
		if at.Before(limit) {
			limit = at
		}
	}
	return limit
}

// read takes what a transaction has read.
func (s *scheduler) read(p *reading, took time.Duration, now time.Time) {
	if p.held != nil {
		s.readDue(p)
	}
	if p.read != nil {
		taken := 0
		if p.catching == nil {
			taken = s.readAll(p, took, now)
		} else {
			taken = s.readCatching(p)
		}
		s.readCount += len(p.read.Messages)
		wide := &s.readScale[min(len(p.catching), 1)]
		if 4*taken >= len(p.read.Seqs) {
			*wide = 1
		} else {
			*wide = min(2**wide, maxRead)
		}
	}
	s.tidy(now)
}

// readDue puts the messages of due keys into their queues. A key of which the table holds nothing any more is free.
func (s *scheduler) readDue(p *reading) {
	octets := int64(0)
	for i := range p.held.Messages {
		row := &p.held.Messages[i]
		octets += int64(row.Octets)
		k := s.keys[keyOf(row)]
		if k == nil || s.inMemory[row.Seq] != nil || k.index >= 0 {
			continue
		}
		if !s.takeMemory(k.to, row.Octets) {
			if len(k.queue) == 0 {
				s.pushWaiting(k)
			}
			continue
		}
		s.enqueue(k, &message{Queued: *row, stored: true, repeat: true})
	}
	for _, k := range p.keys {
		switch {
		case len(k.queue) > 0 || k.index >= 0:
		case octets >= p.held.Octets:
			s.pushWaiting(k)
		default:
			s.free(k)
		}
	}
}

// readAll takes what was read of all destinations that are not behind.
func (s *scheduler) readAll(p *reading, took time.Duration, now time.Time) (taken int) {
	s.progress.note(p.list, p.read, took, now)
	s.full = p.read.IsFull()
	for _, d := range s.destinations {
		d.offered, d.marked = 0, 0
	}
	for i := range p.read.Messages {
		row := &p.read.Messages[i]
		d := s.destination(row.Topic)
		if s.inMemory[row.Seq] == nil && !d.stale && (!d.behind || row.Seq <= d.position) && s.offer(d, row) {
			taken++
		}
	}
	return taken
}

// readCatching takes what was read for destinations that are behind.
func (s *scheduler) readCatching(p *reading) (taken int) {
	was := make(map[*destination]int64, len(p.catching))
	for _, d := range p.catching {
		was[d] = d.position
	}
	left := map[*destination]bool{}
	for i := range p.read.Messages {
		row := &p.read.Messages[i]
		d := s.destination(row.Topic)
		if _, catches := was[d]; !catches || s.inMemory[row.Seq] != nil || left[d] && row.Seq > d.position {
			continue
		}
		d.position = max(d.position, row.Seq)
		if s.offer(d, row) {
			taken++
		} else {
			left[d] = true
		}
	}
	for d := range was {
		switch {
		case left[d]:
		case !p.read.IsFull():
			d.behind = false
		default:
			d.position = max(d.position, p.read.Seqs[len(p.read.Seqs)-1])
			d.behind = d.position < s.progress.top
		}
	}
	return taken
}
