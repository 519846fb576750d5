package outbox

import (
	"container/heap"
	"maps"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/store"
)

// scheduler decides what a stream publishes, writes down and reads next. It has no goroutine, no clock and no database: a worker
// reports what was read and what calls returned, and carries out the decisions.
//
// The invariant: for each topic and key, the next message published is the one with the smallest position that is not done,
// of those that were visible when the relay first read it. A key is free, in flight (in a call), or waiting until a time.
//
// It rests on these rules:
//
//   - A destination has one call at a time, and a key belongs to one destination at a time.
//   - What is in memory, in the table as held, or done of a destination is all that is visible up to its read position. A
//     destination that cannot take a message is behind: it takes nothing beyond until a read from that position brings it. Each
//     read includes the gaps below its position, so a message that commits late is seen with or before what waited for it.
//   - A message of a waiting key is written down as held and leaves the memory. The key is then read by a query of its own, in
//     order of position, and is free again when that query finds nothing.
//   - All outcomes are written in the next transaction, before its reads.
//   - A waiting key becomes due by the clock alone. It has room of its own in its destination.
type scheduler struct {
	config *RelayConfig
	divide func(topic string) string // names the destination of a topic; nil if there is only one
	keeps  bool                      // the Publisher keeps the order of a key by itself
	memory *memory
	seal   func(f *failure) error                  // makes a dead letter
	jitter func(pause time.Duration) time.Duration // shortens a backoff a little

	progress progress
	to       map[string]*destination
	pinned   map[string]*destination // by topic, while its destination has something in hand
	keys     map[store.HeldKey]*key
	inMemory map[int64]*message
	out      outcome // what is to be written
	calls    int     // under way
	stopping bool
	share    int // messages in the queue of a destination of a Divider, unless it is quick

	full      bool // the last read of all was full: there is more
	turn      bool // the next read is one for destinations that are behind
	wide      [2]int
	met       int // messages read since the restart
	reads     int64
	rounds    []report  // that have ended without a call
	lookupDue time.Time // when the table is asked again which keys it holds
}

const (
	maxCalls    = 512 // at once
	usualShare  = 128 // messages that a destination of a Divider has in its queue, unless it is quick
	singleCalls = 32  // in a round
	maxRead     = 32  // times BatchSize
	maxDue      = 1024
	maxTopics   = 1024
	minKeyShare = 16

	// A message that was read so early in an ownership may have been published by the process before.
	maxRepeat = 64_000

	// maxRetryAfter is how long a destination or a message waits at most if RetryLater asks for it.
	maxRetryAfter = time.Hour

	// minOutage is how long a destination must have been unavailable before a message is dead-lettered for it.
	minOutage = time.Hour
)

func newScheduler(config *RelayConfig, divide func(string) string, memory *memory) *scheduler {
	s := &scheduler{config: config, divide: divide, memory: memory, share: usualShare, to: map[string]*destination{}}
	s.restart(nil, time.Time{})
	return s
}

// restart forgets what was read. Calls in flight stay with their destinations, which take nothing until these calls have ended.
func (s *scheduler) restart(held []store.HeldBack, now time.Time) {
	called := map[*message]bool{}
	for _, d := range s.to {
		if d.call != nil {
			for _, m := range d.call.messages {
				called[m] = true
			}
		}
	}
	for _, m := range s.inMemory {
		if !called[m] {
			s.release(m.key.to, m)
		}
	}
	s.progress, s.full, s.turn, s.wide, s.met = progress{}, true, false, [2]int{1, 1}, 0
	s.pinned, s.keys, s.inMemory = map[string]*destination{}, map[store.HeldKey]*key{}, map[int64]*message{}
	for _, d := range s.to {
		d.restart()
		if d.call != nil {
			for _, m := range d.call.messages {
				s.pin(m.Topic, d)
			}
		}
	}
	s.listed(held, now)
}

// listed takes the keys that the table holds.
func (s *scheduler) listed(held []store.HeldBack, now time.Time) {
	known := make(map[store.HeldKey]bool, len(held))
	for _, h := range held {
		known[h.HeldKey] = true
		k := s.keys[h.HeldKey]
		if k == nil {
			k = s.newKey(h.HeldKey, s.destination(h.Topic))
			k.held, k.failed = true, h.Attempts > 0 || h.Due > 0
		}
		if k.held && k.isIdle() {
			k.due = now.Add(h.Due)
			s.wait(k)
		}
	}
	for name, k := range s.keys {
		if k.index >= 0 && !known[name] {
			s.free(k)
		}
	}
}

func (s *scheduler) newKey(name store.HeldKey, d *destination) *key {
	k := &key{name: name, to: d, index: -1}
	s.keys[name] = k
	return k
}

// wait puts a key into the heap of its destination, by its due time.
func (s *scheduler) wait(k *key) {
	if k.index >= 0 {
		heap.Fix(&k.to.waiting, k.index)
		return
	}
	heap.Push(&k.to.waiting, k)
}

// free says that the table holds nothing of a key.
func (s *scheduler) free(k *key) {
	if k.index >= 0 {
		heap.Remove(&k.to.waiting, k.index)
	}
	k.held, k.failed, k.postponed = false, false, time.Time{}
	s.settled(k)
}

// settled decides what becomes of a key after its messages have moved: it is ready, waits, or is forgotten.
func (s *scheduler) settled(k *key) {
	switch {
	case k.inCall > 0 || k.index >= 0 || s.keys[k.name] != k:
	case len(k.queue) > 0:
		k.to.ready(k, false)
	case k.held:
		s.wait(k)
	default:
		delete(s.keys, k.name)
	}
}

// offer gives a message to its destination. It reports whether the message was taken.
func (s *scheduler) offer(d *destination, row *store.Queued) bool {
	name := keyOf(row)
	k := s.keys[name]
	if k != nil && k.held {
		s.out.held = append(s.out.held, row.Seq)
		if n := len(k.queue); n > 0 && row.Seq < k.queue[n-1].Seq { // committed late: it is read first then
			k.due = time.Time{}
			s.putBack(k)
			s.settled(k)
		}
		return true
	}
	if row.Bare || !s.hasRoom(d, row.Octets) {
		d.leave(row.Seq)
		return false
	}
	if k == nil {
		k = s.newKey(name, d)
	}
	if len(k.queue) >= s.keyShare(d) { // a key with very many messages: the table holds them
		k.held, k.due = true, time.Time{}
		s.out.held = append(s.out.held, row.Seq)
		return true
	}
	s.enqueue(k, &message{Queued: *row, repeat: s.met < maxRepeat})
	return true
}

// hasRoom reports whether a destination has room for a message that is not stored as held, and takes the memory for it.
func (s *scheduler) hasRoom(d *destination, octets int) bool {
	if s.divide == nil { // its reads are limited instead
		return true
	}
	return d.fresh < d.share() && s.takeMemory(d, octets)
}

func (s *scheduler) takeMemory(d *destination, octets int) bool {
	if s.divide == nil || s.memory.take(&d.octets, octets) {
		return true
	}
	d.wants = octets
	return false
}

// mayTake reports whether a destination for which there was no memory may have some now.
func (s *scheduler) mayTake(d *destination) bool {
	return d.wants == 0 || d.octets == 0 && s.memory.fits(d.wants)
}

// keyShare is how many messages of one key a destination has in memory.
func (s *scheduler) keyShare(d *destination) int {
	if s.keeps && !d.slow {
		return maxRepeat
	}
	return max(d.share()/8, minKeyShare)
}

func (s *scheduler) enqueue(k *key, m *message) {
	m.key = k
	s.inMemory[m.Seq] = m
	s.requeue(m)
	k.to.ready(k, false)
}

// requeue puts a message where it belongs in the queue of its key.
func (s *scheduler) requeue(m *message) {
	k := m.key
	at := len(k.queue)
	for at > 0 && k.queue[at-1].Seq > m.Seq {
		at--
	}
	k.queue = slices.Insert(k.queue, at, m)
	k.to.count(m, 1)
}

// release gives back the memory of a message that is not in a queue any more.
func (s *scheduler) release(d *destination, m *message) {
	if s.divide != nil {
		s.memory.release(&d.octets, m.Octets)
		d.wants = 0
	}
}

// destination returns where a topic goes.
func (s *scheduler) destination(topic string) *destination {
	if d := s.pinned[topic]; d != nil {
		return d
	}
	name := ""
	if s.divide != nil {
		name = s.divide(topic)
	}
	d := s.to[name]
	if d == nil {
		d = &destination{name: name, size: s.config.BatchSize, least: s.share}
		if s.divide != nil {
			d.size = min(d.size, s.share)
		}
		s.to[name] = d
	}
	s.pin(topic, d)
	return d
}

func (s *scheduler) pin(topic string, d *destination) {
	if s.pinned[topic] == d {
		return
	}
	s.pinned[topic] = d
	d.topics = append(d.topics, topic)
}

// tidy lets the Divider say anew where topics go whose destination has nothing in hand, and forgets destinations.
func (s *scheduler) tidy(now time.Time) {
	for name, d := range s.to {
		if d.call != nil || d.behind || d.fresh+d.retries > 0 || d.round != nil && len(d.round.refused) > 0 {
			continue
		}
		for _, topic := range d.topics {
			delete(s.pinned, topic)
		}
		d.topics = nil
		if len(d.waiting) == 0 && (d.isWell() || now.Sub(d.rest) > maxRetryAfter) {
			delete(s.to, name)
		}
	}
}

// next returns the calls that are to begin.
func (s *scheduler) next(now time.Time) (begin []*call) {
	if s.stopping {
		return nil
	}
	for _, d := range s.to {
		if s.calls >= maxCalls {
			break
		}
		if d.call != nil || now.Before(d.rest) {
			continue
		}
		c := &call{to: d, began: now, single: d.round != nil}
		if c.messages = d.compose(s.callSize(d), s.keeps); len(c.messages) == 0 {
			if d.round != nil && d.round.tried > 0 { // nothing is left to try
				r := report{}
				s.endRound(d, now, &r)
				s.rounds = append(s.rounds, r)
			}
			continue
		}
		if d.round != nil && d.round.tried == 0 {
			d.round.began = now
		}
		d.call = c
		s.calls++
		begin = append(begin, c)
	}
	return begin
}

func (s *scheduler) callSize(d *destination) int {
	if d.round != nil {
		return 1
	}
	return max(d.size, 1)
}

// report is what is to be told of a call that has ended.
type report struct {
	published, failed int
	found             int   // messages that count an attempt after their round
	foundErr          error // of one of these
	err               error // names no message
	pause             time.Duration
}

// inCalls reports whether a message of such a topic is in a call.
func (s *scheduler) inCalls(such func(topic string) bool) bool {
	for _, d := range s.to {
		if d.call != nil && slices.ContainsFunc(d.call.messages, func(m *message) bool { return such(m.Topic) }) {
			return true
		}
	}
	return false
}

// isLookupDue reports whether to read which keys the table holds: a person may have helped.
func (s *scheduler) isLookupDue(now time.Time) bool {
	return now.After(s.lookupDue) && slices.ContainsFunc(slices.Collect(maps.Values(s.to)), func(d *destination) bool { return len(d.waiting) > 0 })
}

// ended notes what came of a call.
func (s *scheduler) ended(c *call, v *verdict, now time.Time) (r report) {
	d := c.to
	d.call = nil
	s.calls--
	r.err = v.err
	if d.stale {
		s.endedStale(c, v, now, &r)
		return r
	}
	var open []int
	for i, m := range c.messages {
		m.key.inCall--
		if v.of(i) != accepted {
			open = append(open, i)
			continue
		}
		r.published++
		s.done(m)
	}
	waits, touched := map[*key]bool{}, map[*key]bool{}
	again, doubts := 0, 0
	for _, i := range open {
		m, answer := c.messages[i], v.of(i)
		k := m.key
		touched[k] = true
		switch {
		case waits[k] && k.index >= 0: // behind one that has failed in this call
			s.evict(m)
		case answer == refused && !waits[k]:
			r.failed++
			s.fail(m, v.reason(i), now)
			waits[k] = true
		case answer == postponed && !waits[k]:
			s.postpone(m, v.reason(i), v.after(i), now)
			waits[k] = true
		case answer == doubtful && c.single && !s.stopping:
			k.inCall++ // until the round ends
			d.round.refused = append(d.round.refused, refusal{m, v.reason(i), d.round.accepted == 0 && !d.round.repeats})
			doubts++
		default:
			waits[k] = true
			if s.requeue(m); answer == doubtful {
				doubts++
			} else {
				again++
			}
		}
	}
	for _, m := range c.messages {
		if !touched[m.key] {
			s.settled(m.key)
		}
	}
	for _, i := range slices.Backward(open) { // in front, in their order
		if k := c.messages[i].key; len(k.queue) > 0 && k.inCall == 0 {
			d.ready(k, true)
		} else {
			s.settled(k)
		}
	}
	if s.stopping {
		return r
	}
	s.judge(c, v, &r, again, doubts, now)
	return r
}

// judge decides how a destination goes on after a call.
func (s *scheduler) judge(c *call, v *verdict, r *report, again, doubts int, now time.Time) {
	d := c.to
	if r.published > 0 {
		d.downSince = time.Time{}
	}
	if r.published+r.failed > 0 && doubts == 0 {
		d.backoff = 0
	}
	if d.round != nil && c.single {
		d.round.tried++
		d.round.accepted += r.published
		d.round.again += again
	}
	switch {
	case v.unavailable:
		if d.round != nil {
			s.endRound(d, now, r)
		}
		r.pause = s.rest(d, v.retryAfter, now)
	case c.single:
		over := d.round.accepted == 0 && now.Sub(d.round.began) > s.config.PublishTimeout
		if d.round.tried >= singleCalls || over {
			s.endRound(d, now, r)
		}
	case doubts > 0 && v.panicked:
		d.round = &round{}
	case doubts > 0:
		d.size = max(len(c.messages)/2, 1)
		if d.unnamed++; d.unnamed > 1 {
			d.round = &round{}
		} else {
			r.pause = s.rest(d, 0, now)
		}
	case r.published+r.failed == 0 && again > 0:
		r.pause = s.rest(d, 0, now)
	default:
		d.unnamed = 0
		d.fit(now.Sub(c.began), len(c.messages), s.divide != nil, s.config.BatchSize)
	}
	if r.pause > 0 {
		s.giveUp(d, c, v, now)
	}
}

// rest leaves a destination alone that is unavailable.
func (s *scheduler) rest(d *destination, after time.Duration, now time.Time) time.Duration {
	limit := max(min(s.config.MaxPause, maxBackoff), s.config.MinPause)
	d.backoff = min(max(2*d.backoff, s.config.MinPause), limit)
	pause := max(s.jittered(d.backoff), min(after, maxRetryAfter), 1)
	d.rest = now.Add(pause)
	if d.downSince.IsZero() {
		d.downSince = now
	}
	return pause
}

func (s *scheduler) jittered(pause time.Duration) time.Duration {
	if s.jitter == nil {
		return pause
	}
	return max(s.jitter(pause), s.config.MinPause)
}

// giveUp dead-letters the messages of a call that have waited for an unavailable destination for too long.
func (s *scheduler) giveUp(d *destination, c *call, v *verdict, now time.Time) {
	for _, m := range c.messages {
		k := m.key
		if len(k.queue) > 0 && k.queue[0] == m && s.isGivenUp(m, d.downSince, now) {
			s.bury(m, failure{message: m.Queued, err: unavailable(v.err), attempts: m.Attempts}, now)
		}
	}
}

// unavailable is the error of a message that dies of an outage.
func unavailable(err error) error {
	if _, is := RetryAfter(err); is {
		return err
	}
	return &retryLater{err: err}
}

func (s *scheduler) isGivenUp(m *message, since, now time.Time) bool {
	limit := s.config.MaxOutage
	return limit > 0 && now.Sub(m.CreatedAt) > limit && !since.IsZero() && now.Sub(since) >= min(limit, minOutage)
}

// endRound decides what the refused messages of a round have been: failing messages, or such as met an unavailable destination.
func (s *scheduler) endRound(d *destination, now time.Time, r *report) {
	was := d.round
	d.round = &round{}
	for _, f := range was.refused {
		f.m.key.inCall--
	}
	switch {
	case was.accepted > 0 || was.repeats && len(was.refused) > 0:
		d.unnamed, d.backoff = 0, 0
		for _, f := range slices.Backward(was.refused) {
			if f.early { // it is tried once more before that counts
				s.requeue(f.m)
				d.ready(f.m.key, true)
				d.round.repeats = true
				continue
			}
			r.found++
			r.foundErr = f.err
			s.fail(f.m, f.err, now)
			s.settled(f.m.key)
		}
		if len(was.refused) == 0 {
			d.round = nil
		}
	case len(was.refused) == 0:
		if d.round, d.unnamed = nil, 0; was.again > 0 {
			r.pause = s.rest(d, 0, now)
		}
	default: // the refused go to the end, so that the next round tries others first
		r.pause = s.rest(d, 0, now)
		for _, f := range was.refused {
			s.requeue(f.m)
			if s.isGivenUp(f.m, d.downSince, now) {
				s.bury(f.m, failure{message: f.m.Queued, err: unavailable(f.err), attempts: f.m.Attempts}, now)
			}
			s.settled(f.m.key)
		}
	}
}

// endedStale notes what came of a call that began before a restart: what it has published. Its destination then reads everything
// again.
func (s *scheduler) endedStale(c *call, v *verdict, now time.Time, r *report) {
	d := c.to
	for i, m := range c.messages {
		s.release(d, m)
		if v.of(i) == accepted {
			r.published++
			s.out.published = append(s.out.published, m.Seq)
		}
	}
	d.stale, d.position, s.full = false, 0, true
	if s.divide == nil { // it has one read position, that of the stream
		d.behind, s.progress = false, progress{}
	}
	if v.unavailable {
		r.pause = s.rest(d, v.retryAfter, now)
	}
}

// done notes that a message is published.
func (s *scheduler) done(m *message) {
	k := m.key
	s.out.published = append(s.out.published, m.Seq)
	s.forget(m)
	k.failed, k.postponed, k.due = false, time.Time{}, time.Time{}
}

// forget removes a message that is in no queue from the memory.
func (s *scheduler) forget(m *message) {
	delete(s.inMemory, m.Seq)
	s.release(m.key.to, m)
}

// evict leaves a message to the table, because its key waits.
func (s *scheduler) evict(m *message) {
	if !m.stored {
		s.out.held = append(s.out.held, m.Seq)
	}
	s.forget(m)
}

// fail counts an attempt of a message, whose key then waits, or makes a dead letter of it.
func (s *scheduler) fail(m *message, err error, now time.Time) {
	attempts := m.Attempts + 1
	f := failure{message: m.Queued, err: err, attempts: attempts, count: 1, due: now.Add(s.pauseAfter(attempts))}
	if attempts >= s.config.MaxAttempts {
		s.bury(m, f, now)
		return
	}
	s.hold(m, f)
	m.key.postponed = time.Time{}
}

// postpone lets a message and its key wait without counting an attempt.
func (s *scheduler) postpone(m *message, err error, after time.Duration, now time.Time) {
	k := m.key
	since := k.postponed
	if since.IsZero() {
		since = now
	}
	if s.isGivenUp(m, since, now) {
		s.bury(m, failure{message: m.Queued, err: err, attempts: m.Attempts}, now)
		return
	}
	after = min(max(after, s.config.MinPause), max(maxRetryAfter, s.config.MinPause))
	s.hold(m, failure{message: m.Queued, err: err, attempts: m.Attempts, due: now.Add(after)})
	k.postponed = since
}

// hold writes down that a message has failed. Its key waits, and what is behind it of the key leaves the memory.
func (s *scheduler) hold(m *message, f failure) {
	k := m.key
	s.out.blamed = append(s.out.blamed, f)
	if i := slices.Index(k.queue, m); i >= 0 {
		k.queue = slices.Delete(k.queue, i, i+1)
		k.to.count(m, -1)
	}
	s.forget(m)
	s.putBack(k)
	k.held, k.failed, k.due = true, true, f.due
	s.settled(k)
}

// putBack leaves the queue of a key to the table.
func (s *scheduler) putBack(k *key) {
	for _, m := range k.queue {
		k.to.count(m, -1)
		s.evict(m)
	}
	k.queue = nil
}

// bury makes a dead letter of a message. Its key goes on when that is written down: otherwise the message might be published after
// others of the key, by a relay that does not know. A message that cannot be sealed waits.
func (s *scheduler) bury(m *message, f failure, now time.Time) {
	k := m.key
	if s.seal != nil {
		if err := s.seal(&f); err != nil {
			f.due, f.err = now.Add(s.config.MaxPause), err
			s.hold(m, f)
			return
		}
	}
	s.out.buried = append(s.out.buried, f)
	if i := slices.Index(k.queue, m); i >= 0 {
		k.queue = slices.Delete(k.queue, i, i+1)
		k.to.count(m, -1)
	}
	s.forget(m)
	s.putBack(k)
	k.held, k.failed, k.postponed, k.due = true, false, time.Time{}, time.Time{}
	s.settled(k)
}

// pauseAfter is the backoff of a message: it doubles from one attempt to the next.
func (s *scheduler) pauseAfter(attempts int) time.Duration {
	pause := s.config.MinPause
	for i := 1; i < attempts && pause < s.config.MaxPause; i++ {
		pause *= 2
	}
	return s.jittered(min(pause, s.config.MaxPause))
}

// keyOf names what a message leaves in order with.
func keyOf(m *store.Queued) store.HeldKey {
	if m.Key == "" {
		return store.HeldKey{Topic: m.Topic, Seq: m.Seq}
	}
	return store.HeldKey{Topic: m.Topic, Key: m.Key}
}
