package outbox

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/db"
)

// readPlan describes what a transaction reads: messages of keys that are due, and messages that are
// not held. See scheduler for held messages.
type readPlan struct {
	keys    []*key // the keys whose messages the field held reads
	held    *db.ReadHeld
	list    *db.ListWriters
	read    *db.ReadMessages
	catchUp []*destination // those of a catch-up read, which begins at the position of the first; else nil
}

// plan returns what to read now, or nil. The parameter poll is true if the outbox may have new
// messages.
func (s *scheduler) plan(now time.Time, poll bool) *readPlan {
	if s.stopping {
		return nil
	}
	p := &readPlan{}
	s.planDue(p, now)
	catchUp := s.catchUp()
	readAll := s.canReadAll(now) && (s.full || poll)
	switch {
	case len(catchUp) > 0 && (s.catchUpNext || !readAll):
		s.catchUpNext = false
		s.planCatchUp(p, catchUp)
	case readAll:
		s.catchUpNext = true
		p.list, p.read = s.progress.next(now)
		p.read.Topics = s.busyTopics()
		s.limit(p.read, s.readScale[0])
	}
	if p.held == nil && p.read == nil {
		return nil
	}
	return p
}

// canReadAll reports whether an ordinary read, which serves all destinations, is useful. With a
// Divider it always is. Without a Divider, the queue of the only destination must have room.
func (s *scheduler) canReadAll(now time.Time) bool {
	if s.divide != nil {
		return true
	}
	d := s.destinations[""]
	return d == nil || !d.stale && d.fresh < d.batch && (d.fresh == 0 || !now.Before(d.retryAt))
}

func (s *scheduler) limit(read *db.ReadMessages, scale int) {
	read.Room, read.Octets = s.config.BatchSize*s.config.Streams*scale, s.config.readBytes()
}

// busyTopics returns the topics whose payloads an ordinary read leaves out, because their
// destinations have no room.
func (s *scheduler) busyTopics() (topics []string) {
	if s.divide == nil {
		return nil
	}
	for topic, d := range s.byTopic {
		if len(topics) < maxTopics && (d.lagging || d.fresh >= d.queueLimit()) {
			topics = append(topics, topic)
		}
	}
	return topics
}

// catchUp returns the lagging destinations of the next catch-up read. The first is the destination
// that has waited longest, and the read begins at its position. The others have the same position
// or a later one.
func (s *scheduler) catchUp() (lagging []*destination) {
	for _, d := range s.destinations {
		if d.lagging && !d.stale && d.fresh <= d.queueLimit()/2 && s.mayTakeMemory(d) {
			lagging = append(lagging, d)
		}
	}
	if len(lagging) == 0 {
		return nil
	}
	slices.SortFunc(lagging, func(a, b *destination) int { return cmp.Compare(a.served, b.served) })
	first, topics := lagging[0], 0
	return slices.DeleteFunc(lagging, func(d *destination) bool {
		if d != first && (d.position < first.position || topics+len(d.topics) > maxTopics) {
			return true
		}
		topics += len(d.topics)
		return false
	})
}

func (s *scheduler) planCatchUp(p *readPlan, lagging []*destination) {
	p.catchUp, p.read = lagging, s.progress.from(lagging[0].position)
	p.read.Only = true
	for _, d := range lagging {
		p.read.Topics = append(p.read.Topics, d.topics...)
	}
	s.catchUpReads++
	lagging[0].served = s.catchUpReads
	s.limit(p.read, s.readScale[1])
}

// planDue adds due keys to the plan, as far as their destinations have room.
func (s *scheduler) planDue(p *readPlan, now time.Time) {
	read := &db.ReadHeld{Octets: s.config.readBytes()}
	limit := maxDue
	for _, d := range s.destinations {
		if d.stale || len(d.waiting) == 0 || now.Before(d.retryAt) || !s.mayTakeMemory(d) {
			continue
		}
		for room := min(d.retryRoom(), limit); room > 0 && len(d.waiting) > 0 && !d.waiting[0].due.After(now); {
			k := heap.Pop(&d.waiting).(*key)
			if current := s.destination(k.name.Topic); current != d { // the Divider now names another destination
				k.destination = current
				s.pushWaiting(k)
				continue
			}
			run := 1 // a failed message is retried alone
			if !k.failed && k.name.Key != "" {
				run = min(room, d.keyRun())
			}
			read.Keys, read.Runs, p.keys = append(read.Keys, k.name), append(read.Runs, run), append(p.keys, k)
			room, limit = room-run, limit-run
		}
	}
	if len(p.keys) > 0 {
		p.held = read
	}
}

// wake returns when a backoff or the wait of a key ends next, or limit if that is earlier. Until
// then, only an event can make the scheduler decide anything.
func (s *scheduler) wake(now, limit time.Time) time.Time {
	for _, d := range s.destinations {
		if d.call == nil && (d.fresh+d.retries > 0 || d.lagging) && now.Before(d.retryAt) {
			limit = earlier(limit, d.retryAt)
		}
		if len(d.waiting) > 0 && !d.stale && d.retryRoom() > 0 && s.mayTakeMemory(d) {
			due := d.waiting[0].due
			if d.retryAt.After(due) {
				due = d.retryAt
			}
			limit = earlier(limit, due)
		}
	}
	return limit
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// apply updates the scheduler with the results of the statements of a plan.
func (s *scheduler) apply(p *readPlan, took time.Duration, now time.Time) {
	if p.held != nil {
		s.readDue(p)
	}
	if p.read != nil {
		if p.catchUp == nil {
			s.progress.note(p.list, p.read, took, now)
			s.full = p.read.IsFull()
		}
		taken := s.offerAll(p)
		s.readCount += len(p.read.Messages)
		// Increase the limit of reads while most of their rows are skipped.
		scale := &s.readScale[min(len(p.catchUp), 1)]
		if 4*taken >= len(p.read.Seqs) {
			*scale = 1
		} else {
			*scale = min(2**scale, maxReadScale)
		}
	}
	s.cleanUp(now)
}

// readDue queues the messages that were read for due keys. A key that has no held message in the
// table any more is free: its new messages are published.
func (s *scheduler) readDue(p *readPlan) {
	bytes := int64(0)
	for i := range p.held.Messages {
		row := &p.held.Messages[i]
		bytes += int64(row.Octets)
		k := s.keys[keyOf(row)]
		if k == nil || s.inMemory[row.Seq] != nil || k.index >= 0 {
			continue
		}
		if !s.takeMemory(k.destination, row.Octets) {
			if len(k.queue) == 0 {
				s.pushWaiting(k)
			}
			continue
		}
		s.enqueue(k, &message{Queued: *row, held: true, repeat: true})
	}
	for _, k := range p.keys {
		switch {
		case len(k.queue) > 0 || k.index >= 0:
		case bytes >= p.held.Octets: // the read was cut off at its limit of bytes, so the key may have messages
			s.pushWaiting(k)
		default:
			s.free(k)
		}
	}
}

// offerAll offers the messages of a read to their destinations, and returns how many the
// destinations have accepted. A lagging destination skips messages beyond its position. After a
// catch-up read its destinations are not lagging any more, unless a destination has no room again
// or the read was cut off.
func (s *scheduler) offerAll(p *readPlan) (taken int) {
	isIncluded := make(map[*destination]bool, len(p.catchUp))
	for _, d := range p.catchUp {
		isIncluded[d], d.lagging = true, false
	}
	for i := range p.read.Messages {
		row := &p.read.Messages[i]
		d := s.destination(row.Topic)
		if p.catchUp != nil && !isIncluded[d] || d.stale || d.lagging && row.Seq > d.position {
			continue
		}
		if s.inMemory[row.Seq] == nil && s.offer(d, row) {
			taken++
		}
	}
	for _, d := range p.catchUp {
		if !d.lagging && p.read.IsFull() {
			d.position = max(d.position, p.read.Seqs[len(p.read.Seqs)-1])
			d.lagging = d.position < s.progress.top
		}
	}
	return taken
}
