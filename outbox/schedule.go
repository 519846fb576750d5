package outbox

import (
	"container/heap"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/db"
)

// scheduler decides what the worker publishes, stores and reads next. It has no goroutine, no clock
// and no database. The worker passes it the rows of reads and the results of calls, and carries out
// its decisions.
//
// A message is done when it is published or dead-lettered. Its position is its sequence number. The
// invariant: the next message of a topic and key to be published is the one with the lowest
// position that is not done. Rows that are committed after the relay has first read that message do
// not count. At any time a key is ready, is in a call, or waits until its due time.
//
// These rules keep the invariant:
//
//   - A destination has one call at a time, and a key belongs to one destination at a time.
//   - Every committed message of a destination up to its read position is in memory, is marked as
//     held in the table, or is done. A destination without room is lagging: it skips later messages
//     until a catch-up read begins at its position. Each read also covers the gaps below its start,
//     so a message that commits late is read no later than the next messages of its key.
//   - While a key waits, its messages are marked as held in the table, and are not in memory. Reads
//     of new messages skip held rows. When the key is due, a separate query reads its held rows in
//     order of position. The key is free again when that query returns no row for it, unless the
//     query was cut off at its limit of bytes.
//   - A transaction that reads messages first stores all outcomes.
//   - A key stops waiting at its due time, or later, as soon as its destination has room and no
//     backoff. No event is needed to end the wait. The queue has separate room for retries, which
//     fresh messages cannot fill.
type scheduler struct {
	config     *RelayConfig
	divide     func(topic string) string // names the destination of a topic; nil if there is only one
	keepsOrder bool                      // the Publisher is an OrderKeeper
	memory     *memory
	jitter     func(pause time.Duration) time.Duration // shortens a backoff a little; nil in tests

	progress     progress
	destinations map[string]*destination
	byTopic      map[string]*destination // the destination of each topic
	keys         map[db.HeldKey]*key
	inMemory     map[int64]*message
	pending      pendingWrites
	reports      []*report // results for the log and the Observer; the worker takes them after each step
	calls        int       // number of calls in progress
	stopping     bool      // no call and no read begins any more
	minQueue     int       // the minQueue of new destinations

	full         bool   // the last ordinary read was cut off at its limit, so there are more messages
	catchUpNext  bool   // the next read is a catch-up read, if a destination is lagging
	readScale    [2]int // factors of the row limits of ordinary reads and of catch-up reads
	readCount    int    // number of messages read since the restart
	catchUpReads int64  // number of catch-up reads
	nextHeldList time.Time
}

const (
	maxCalls      = 512 // maximum number of calls in progress
	dividedQueue  = 128 // minQueue with a Divider; the queue may be longer while calls are fast
	maxRoundCalls = 32
	maxReadScale  = 32
	maxDue        = 1024   // maximum number of messages in a read of due keys
	maxTopics     = 1024   // maximum number of topics in a read
	maxKeyQueue   = 64_000 // maximum number of messages of one key in memory

	// maxRepeats is how many messages a new owner of a stream marks as possible repetitions: the
	// previous owner may have published the first messages without removing them.
	maxRepeats = 64_000

	// maxRetryAfter is the longest time that a destination or a message waits because of RetryLater.
	maxRetryAfter = time.Hour

	// minOutage is how long a destination must have been unavailable before its messages are
	// dead-lettered, unless MaxOutage is less.
	minOutage = time.Hour
)

func newScheduler(config *RelayConfig, divide func(string) string, memory *memory) *scheduler {
	s := &scheduler{
		config: config, divide: divide, memory: memory, minQueue: dividedQueue, destinations: map[string]*destination{},
	}
	s.restart(nil, time.Time{})
	return s
}

// restart drops all messages from memory, except those in calls, and begins to read from the start
// of the stream. A destination with a call in progress accepts no message until the call ends.
func (s *scheduler) restart(held []db.HeldBack, now time.Time) {
	inCall := map[*message]bool{}
	for _, d := range s.destinations {
		if d.call != nil {
			for _, m := range d.call.messages {
				inCall[m] = true
			}
		}
	}
	for _, m := range s.inMemory {
		if !inCall[m] {
			s.releaseMemory(m.key.destination, m)
		}
	}
	s.progress, s.full, s.catchUpNext, s.readScale, s.readCount = progress{}, true, false, [2]int{1, 1}, 0
	s.byTopic, s.keys, s.inMemory = map[string]*destination{}, map[db.HeldKey]*key{}, map[int64]*message{}
	for _, d := range s.destinations {
		d.restart()
		if d.call != nil {
			for _, m := range d.call.messages {
				s.pin(m.Topic, d)
			}
		}
	}
	s.syncHeld(held, now)
}

// syncHeld compares the keys with the held keys of the table. It adds missing keys, sets the due
// times of keys, and frees waiting keys that have no held row any more.
func (s *scheduler) syncHeld(held []db.HeldBack, now time.Time) {
	inTable := make(map[db.HeldKey]bool, len(held))
	for _, h := range held {
		inTable[h.HeldKey] = true
		k := s.keys[h.HeldKey]
		if k == nil {
			k = s.newKey(h.HeldKey, s.destination(h.Topic))
			k.held, k.failed = true, h.Attempts > 0 || h.Due > 0
		}
		if k.held && k.isIdle() {
			k.due = now.Add(h.Due)
			s.pushWaiting(k)
		}
	}
	for name, k := range s.keys {
		if k.index >= 0 && !inTable[name] {
			s.free(k)
		}
	}
}

func (s *scheduler) newKey(name db.HeldKey, d *destination) *key {
	k := &key{name: name, destination: d, index: -1}
	s.keys[name] = k
	return k
}

// pushWaiting adds a key to the heap of its destination. If the key is in the heap already,
// pushWaiting moves it according to its new due time.
func (s *scheduler) pushWaiting(k *key) {
	if k.index >= 0 {
		heap.Fix(&k.destination.waiting, k.index)
		return
	}
	heap.Push(&k.destination.waiting, k)
}

// free ends the wait of a key, because the table has no held message of it any more.
func (s *scheduler) free(k *key) {
	if k.index >= 0 {
		heap.Remove(&k.destination.waiting, k.index)
	}
	k.held, k.failed, k.postponedSince = false, false, time.Time{}
	s.reschedule(k)
}

// reschedule makes a key ready if it has messages in memory, makes it wait if it has held messages
// in the table, or removes it. It does nothing if the key is in a call, waits already, or was
// created before the last restart.
func (s *scheduler) reschedule(k *key) {
	switch {
	case k.inCall > 0 || k.index >= 0 || s.keys[k.name] != k:
	case len(k.queue) > 0:
		k.destination.ready(k, false)
	case k.held:
		s.pushWaiting(k)
	default:
		delete(s.keys, k.name)
	}
}

// offer passes a message to its destination. It returns true if the message is now in the queue or
// will be marked as held, and false if the destination has no room.
func (s *scheduler) offer(d *destination, row *db.Queued) bool {
	name := keyOf(row)
	k := s.keys[name]
	if k != nil && k.held {
		s.pending.held = append(s.pending.held, row.Seq)
		if n := len(k.queue); n > 0 && row.Seq < k.queue[n-1].Seq {
			// The message was committed after later messages of its key, which are in the queue. Evict the
			// queue: the next read of the key returns all of its messages in order.
			k.due = time.Time{}
			s.evictQueue(k)
			s.reschedule(k)
		}
		return true
	}
	if k != nil && len(k.queue) >= s.keyLimit(d) { // the key has very many messages: later ones stay in the table
		k.held, k.due = true, time.Time{}
		s.pending.held = append(s.pending.held, row.Seq)
		return true
	}
	if row.Bare || !s.hasRoom(d, row.Octets) {
		d.markLagging(row.Seq)
		return false
	}
	if k == nil {
		k = s.newKey(name, d)
	}
	s.enqueue(k, &message{Queued: *row, repeat: s.readCount < maxRepeats})
	return true
}

// hasRoom reports whether a destination has room for a fresh message, and reserves its memory.
// Without a Divider there is always room, because reads are limited instead.
func (s *scheduler) hasRoom(d *destination, bytes int) bool {
	return s.divide == nil || d.fresh < d.queueLimit() && s.takeMemory(d, bytes)
}

func (s *scheduler) takeMemory(d *destination, bytes int) bool {
	if s.divide == nil || s.memory.take(&d.bytes, bytes) {
		return true
	}
	d.wanted = bytes
	return false
}

// mayTakeMemory reports whether a destination has lacked no memory, or would now find memory for
// the message that did not fit.
func (s *scheduler) mayTakeMemory(d *destination) bool {
	return d.wanted == 0 || d.bytes == 0 && s.memory.fits(d.wanted)
}

// keyLimit returns the maximum number of messages of one key in memory. Further messages of the key
// stay in the table, marked as held.
func (s *scheduler) keyLimit(d *destination) int {
	if s.keepsOrder && !d.slow {
		return maxKeyQueue
	}
	return d.keyRun()
}

func (s *scheduler) enqueue(k *key, m *message) {
	m.key = k
	s.inMemory[m.Seq] = m
	s.insert(m)
	k.destination.ready(k, false)
}

// insert inserts a message into the queue of its key, by position.
func (s *scheduler) insert(m *message) {
	k := m.key
	at := len(k.queue)
	for at > 0 && k.queue[at-1].Seq > m.Seq {
		at--
	}
	k.queue = slices.Insert(k.queue, at, m)
	k.destination.count(m, 1)
}

func (s *scheduler) releaseMemory(d *destination, m *message) {
	if s.divide != nil {
		s.memory.release(&d.bytes, m.Octets)
		d.wanted = 0
	}
}

// destination returns the destination of a topic, and creates it if necessary.
func (s *scheduler) destination(topic string) *destination {
	if d := s.byTopic[topic]; d != nil {
		return d
	}
	name := ""
	if s.divide != nil {
		name = s.divide(topic)
	}
	d := s.destinations[name]
	if d == nil {
		d = &destination{name: name, batch: s.config.BatchSize, minQueue: s.minQueue}
		if s.divide != nil {
			d.batch = min(d.batch, s.minQueue)
		}
		s.destinations[name] = d
	}
	s.pin(topic, d)
	return d
}

// pin makes d the destination of a topic until cleanUp finds d idle.
func (s *scheduler) pin(topic string, d *destination) {
	if s.byTopic[topic] == d {
		return
	}
	s.byTopic[topic] = d
	d.topics = append(d.topics, topic)
}

// cleanUp unpins the topics of idle destinations, so that the next message of such a topic asks the
// Divider again. It removes idle destinations that are healthy, or that have been idle for longer
// than any backoff.
func (s *scheduler) cleanUp(now time.Time) {
	for name, d := range s.destinations {
		if d.call != nil || d.lagging || d.fresh+d.retries > 0 || d.round != nil && len(d.round.refused) > 0 {
			continue
		}
		for _, topic := range d.topics {
			delete(s.byTopic, topic)
		}
		d.topics = nil
		if len(d.waiting) == 0 && (d.isHealthy() || now.Sub(d.retryAt) > maxRetryAfter) {
			delete(s.destinations, name)
		}
	}
}

// next returns the calls to begin now.
func (s *scheduler) next(now time.Time) (begin []*call) {
	if s.stopping {
		return nil
	}
	for _, d := range s.destinations {
		if s.calls >= maxCalls {
			break
		}
		if d.call != nil || now.Before(d.retryAt) {
			continue
		}
		size := max(d.batch, 1)
		if d.round != nil {
			size = 1
		}
		c := &call{destination: d, began: now, messages: d.compose(size, s.keepsOrder)}
		if len(c.messages) == 0 {
			if d.round != nil && d.round.tried > 0 { // the destination has no message left to try
				s.endRound(d, 0, now)
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

// report is the result of a call or of a round, for the log and the Observer.
type report struct {
	destination *destination
	data        TracePublishedData
	err         error
	pause       time.Duration // the backoff of the destination
}

// callsTopic reports whether a call in progress has a message with a topic that the function
// accepts.
func (s *scheduler) callsTopic(has func(topic string) bool) bool {
	for _, d := range s.destinations {
		if d.call != nil && slices.ContainsFunc(d.call.messages, func(m *message) bool { return has(m.Topic) }) {
			return true
		}
	}
	return false
}

// callEnded applies the result of a call.
//
// An accepted message is done. A refused or postponed message waits, and so does its key: later
// messages of the key that were in the same call are evicted from memory, and are read again when
// the key is due. All other messages return to the front of the queue. In a round, a message with
// an unknown outcome stays out of the queue until the round ends.
func (s *scheduler) callEnded(c *call, r *result, now time.Time) {
	d := c.destination
	d.call = nil
	s.calls--
	data := TracePublishedData{Given: len(c.messages), Duration: r.took, Err: r.err}
	rep := &report{destination: d, data: data, err: r.err}
	s.reports = append(s.reports, rep)
	if d.stale {
		s.staleCallEnded(c, r, rep, now)
		return
	}
	var open []int
	for i, m := range c.messages {
		m.key.inCall--
		if r.messages[i].status != accepted {
			open = append(open, i)
			continue
		}
		rep.data.Published++
		s.done(m)
	}
	waits, isOpen := map[*key]bool{}, map[*key]bool{}
	again, unknowns := 0, 0
	for _, i := range open {
		m, answer := c.messages[i], &r.messages[i]
		k := m.key
		isOpen[k] = true
		switch {
		case waits[k] && k.index >= 0: // an earlier message of the key has failed in this call
			s.evict(m)
		case answer.status == refused && !waits[k]:
			rep.data.Failed++
			s.fail(m, answer.err, now)
			waits[k] = true
		case answer.status == postponed && !waits[k]:
			s.postpone(m, answer.err, answer.after, now)
			waits[k] = true
		case answer.status == unknown && d.round != nil && !r.unavailable && !s.stopping:
			k.inCall++ // keeps the key out of calls until the round ends
			early := d.round.accepted == 0 && !d.round.repeats
			d.round.refused = append(d.round.refused, refusal{m, answer.err, early})
			unknowns++
		default:
			waits[k] = true
			if s.insert(m); answer.status == unknown {
				unknowns++
			} else {
				again++
			}
		}
	}
	s.rescheduleCall(c, open, isOpen)
	if !s.stopping {
		s.afterCall(c, r, rep, again, unknowns, now)
	}
}

// rescheduleCall reschedules the keys of a call. Keys whose messages the broker has not accepted go
// to the front of their lists, in the order of the call.
func (s *scheduler) rescheduleCall(c *call, open []int, isOpen map[*key]bool) {
	for _, m := range c.messages {
		if !isOpen[m.key] {
			s.reschedule(m.key)
		}
	}
	for _, i := range slices.Backward(open) {
		if k := c.messages[i].key; len(k.queue) > 0 && k.inCall == 0 {
			c.destination.ready(k, true)
		} else {
			s.reschedule(k)
		}
	}
}

// afterCall decides how a destination continues: with another batch, with a backoff, or with a
// round of single calls. The parameter again is the number of messages that are published again
// because of RetryLater. The parameter unknowns is the number of messages whose outcome is unknown.
func (s *scheduler) afterCall(c *call, r *result, rep *report, again, unknowns int, now time.Time) {
	d := c.destination
	published, single := rep.data.Published, d.round != nil
	if published > 0 {
		d.downSince = time.Time{}
	}
	answered := published+rep.data.Failed > 0
	if answered && unknowns == 0 {
		d.backoff = 0
	}
	if single {
		d.round.tried++
		d.round.accepted += published
		d.round.again += again
	}
	switch {
	case r.unavailable:
		if single {
			rep.pause = s.endRound(d, r.retryAfter, now)
		}
		if rep.pause == 0 {
			rep.pause = s.backOff(d, r.retryAfter, now)
		}
	case single:
		timeIsUp := d.round.accepted == 0 && now.Sub(d.round.began) > s.config.PublishTimeout
		if d.round.tried >= maxRoundCalls || timeIsUp {
			rep.pause = s.endRound(d, 0, now)
		}
	case unknowns > 0 && r.panicked:
		d.round = &round{}
	case unknowns > 0:
		d.batch = max(len(c.messages)/2, 1)
		if d.unnamed++; d.unnamed > 1 {
			d.round = &round{}
		} else {
			rep.pause = s.backOff(d, 0, now)
		}
	case !answered && again > 0:
		rep.pause = s.backOff(d, 0, now)
	default:
		d.unnamed = 0
		d.adjustBatch(now.Sub(c.began), len(c.messages), s.divide != nil, s.config.BatchSize)
	}
	if rep.pause > 0 {
		s.giveUp(d, c, r.err, now)
	}
}

// backOff starts or doubles the backoff of a destination, and returns it. The backoff is at least
// the duration of RetryLater, which is the parameter after.
func (s *scheduler) backOff(d *destination, after time.Duration, now time.Time) time.Duration {
	limit := max(min(s.config.MaxPause, maxBackoff), s.config.MinPause)
	d.backoff = min(max(2*d.backoff, s.config.MinPause), limit)
	pause := max(s.jittered(d.backoff), min(after, maxRetryAfter), 1)
	d.retryAt = now.Add(pause)
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

// giveUp dead-letters messages of a call that have waited too long for an unavailable destination.
// It considers only messages that are the first of their key.
func (s *scheduler) giveUp(d *destination, c *call, err error, now time.Time) {
	for _, m := range c.messages {
		if k := m.key; len(k.queue) > 0 && k.queue[0] == m {
			s.expire(m, err, d.downSince, now)
		}
	}
}

// expire dead-letters a message that has waited for longer than RelayConfig.MaxOutage, and reports
// whether it has done so. The parameter since is the beginning of the outage: the time from which
// the destination has been unavailable, or the key has been postponed.
func (s *scheduler) expire(m *message, err error, since, now time.Time) bool {
	limit := s.config.MaxOutage
	if limit == 0 || now.Sub(m.CreatedAt) <= limit || since.IsZero() || now.Sub(since) < min(limit, minOutage) {
		return false
	}
	if _, ok := RetryAfter(err); !ok {
		err = &retryLater{err: err} // its Class is the class of the dead letter
	}
	s.deadLetter(m, failure{message: m.Queued, err: err, attempts: m.Attempts}, now)
	return true
}

// endRound ends a round and returns the backoff of the destination, or 0. If the round accepted a
// message, an attempt counts for each refused message. If it accepted none, the destination is
// unavailable. The parameter after is the duration of RetryLater, or 0.
//
// An outage may have ended just before the first accepted message of the round. So the next round
// first tries the messages again that were refused before that message. A second refusal counts.
func (s *scheduler) endRound(d *destination, after time.Duration, now time.Time) (pause time.Duration) {
	ended := d.round
	d.round = &round{}
	for _, f := range ended.refused {
		f.m.key.inCall--
	}
	switch {
	case ended.accepted > 0 || ended.repeats && len(ended.refused) > 0:
		d.unnamed, d.backoff = 0, 0
		rep := &report{destination: d}
		for _, f := range slices.Backward(ended.refused) {
			if f.early {
				s.insert(f.m)
				d.ready(f.m.key, true)
				d.round.repeats = true
				continue
			}
			rep.data.Failed++
			rep.err = f.err
			s.fail(f.m, f.err, now)
			s.reschedule(f.m.key)
		}
		if rep.data.Failed > 0 {
			s.reports = append(s.reports, rep)
		}
		if len(ended.refused) == 0 {
			d.round = nil
		}
	case len(ended.refused) == 0:
		if d.round, d.unnamed = nil, 0; ended.again > 0 {
			pause = s.backOff(d, after, now)
		}
	default: // the refused messages move to the end of the queue, so that the next round tries others first
		pause = s.backOff(d, after, now)
		for _, f := range ended.refused {
			s.insert(f.m)
			s.expire(f.m, f.err, d.downSince, now)
			s.reschedule(f.m.key)
		}
	}
	return pause
}

// staleCallEnded applies the result of a call that began before a restart. It stores which messages
// were published. Then the destination reads all its messages again.
func (s *scheduler) staleCallEnded(c *call, r *result, rep *report, now time.Time) {
	d := c.destination
	for i, m := range c.messages {
		s.releaseMemory(d, m)
		if r.messages[i].status == accepted {
			rep.data.Published++
			s.pending.published = append(s.pending.published, m.Seq)
		}
	}
	d.stale, d.position, s.full = false, 0, true
	if s.divide == nil { // without a Divider, the stream itself is read from the beginning
		d.lagging, s.progress = false, progress{}
	}
	if r.unavailable {
		rep.pause = s.backOff(d, r.retryAfter, now)
	}
}

func (s *scheduler) done(m *message) {
	k := m.key
	s.pending.published = append(s.pending.published, m.Seq)
	s.drop(m)
	k.failed, k.postponedSince, k.due = false, time.Time{}, time.Time{}
}

// drop removes a message that is in no queue from memory.
func (s *scheduler) drop(m *message) {
	delete(s.inMemory, m.Seq)
	s.releaseMemory(m.key.destination, m)
}

// evict removes a message that is in no queue from memory, and has it marked as held in the table.
func (s *scheduler) evict(m *message) {
	if !m.held {
		s.pending.held = append(s.pending.held, m.Seq)
	}
	s.drop(m)
}

func (s *scheduler) evictQueue(k *key) {
	for _, m := range k.queue {
		k.destination.count(m, -1)
		s.evict(m)
	}
	k.queue = nil
}

// fail counts a failed attempt of a message. Then the message and its key wait, or the message is
// dead-lettered.
func (s *scheduler) fail(m *message, err error, now time.Time) {
	attempts := m.Attempts + 1
	f := failure{message: m.Queued, err: err, attempts: attempts, count: 1, due: now.Add(s.backoffAfter(attempts))}
	if attempts >= s.config.MaxAttempts {
		s.deadLetter(m, f, now)
		return
	}
	s.hold(m, f)
	m.key.postponedSince = time.Time{}
}

// postpone makes a message and its key wait without counting an attempt.
func (s *scheduler) postpone(m *message, err error, after time.Duration, now time.Time) {
	k := m.key
	since := k.postponedSince
	if since.IsZero() {
		since = now
	}
	if s.expire(m, err, since, now) {
		return
	}
	after = min(max(after, s.config.MinPause), max(maxRetryAfter, s.config.MinPause))
	s.hold(m, failure{message: m.Queued, err: err, attempts: m.Attempts, due: now.Add(after)})
	k.postponedSince = since
}

// hold stores that a message waits until f.due. It evicts the later messages of its key from
// memory.
func (s *scheduler) hold(m *message, f failure) {
	k := m.key
	s.pending.failed = append(s.pending.failed, f)
	s.dropFirst(m)
	k.held, k.failed, k.due = true, true, f.due
	s.reschedule(k)
}

// deadLetter makes a message a dead letter. Its key waits until the dead letter is stored.
// Otherwise a new owner of the stream could publish the message after later messages of its key. If
// the dead letter cannot be sealed, the message waits and is retried.
func (s *scheduler) deadLetter(m *message, f failure, now time.Time) {
	k := m.key
	if err := s.config.sealLetter(&f); err != nil {
		f.due, f.err = now.Add(s.config.MaxPause), err
		s.hold(m, f)
		return
	}
	s.pending.dead = append(s.pending.dead, f)
	s.dropFirst(m)
	k.held, k.failed, k.postponedSince, k.due = true, false, time.Time{}, time.Time{}
	s.reschedule(k)
}

// dropFirst removes the first message of a key from memory, and evicts the rest of the queue.
func (s *scheduler) dropFirst(m *message) {
	k := m.key
	if i := slices.Index(k.queue, m); i >= 0 {
		k.queue = slices.Delete(k.queue, i, i+1)
		k.destination.count(m, -1)
	}
	s.drop(m)
	s.evictQueue(k)
}

// backoffAfter returns the backoff of a message after the given number of failed attempts. It
// doubles from one attempt to the next.
func (s *scheduler) backoffAfter(attempts int) time.Duration {
	pause := s.config.MinPause
	for i := 1; i < attempts && pause < s.config.MaxPause; i++ {
		pause *= 2
	}
	return s.jittered(min(pause, s.config.MaxPause))
}

// keyOf returns the key of a row. A message without a key is identified by its position.
func keyOf(m *db.Queued) db.HeldKey {
	if m.Key == "" {
		return db.HeldKey{Topic: m.Topic, Seq: m.Seq}
	}
	return db.HeldKey{Topic: m.Topic, Key: m.Key}
}
