package outbox

import (
	"container/heap"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/db"
)

// scheduler decides what the worker publishes, writes down and reads next. It has no goroutine, no clock and no database: the worker
// reports the rows that it has read and the answers of calls, and carries out the decisions.
//
// The invariant: for each topic and key, the next message published is the one with the lowest position that is not done, among the
// rows that were committed when the relay first read the message. A key is ready or in a call, or it waits until a time.
//
// It rests on these rules:
//
//   - A destination has one call at a time, and a key belongs to one destination at a time.
//   - Every visible message of a destination up to its read position is in memory, held in the table, or done. A destination that
//     has no room is behind: it skips later messages until a read begins again at its position. Each read covers the gaps below
//     its position as well, so a message that commits late is seen no later than its successors of the key.
//   - A message of a waiting key is written down as held, and leaves the memory. The key is then read by a query of its own, in
//     order of position. It is free again when that query finds nothing, unless the query was cut off at its limit of bytes.
//   - A transaction that reads messages writes down all outcomes first.
//   - No event is needed to end the wait of a key: the time is enough, as soon as its destination has room and is not backed off.
//     What is tried again has room of its own, beside what is new.
type scheduler struct {
	config *RelayConfig
	divide func(topic string) string // names the destination of a topic; nil if there is only one
	keeps  bool                      // the Publisher is an OrderKeeper
	memory *memory
	seal   func(f *failure) error                  // makes a dead letter
	jitter func(pause time.Duration) time.Duration // shortens a backoff a little

	progress     progress
	destinations map[string]*destination
	byTopic      map[string]*destination // of topics whose destination has messages in its queue or in a call
	keys         map[db.HeldKey]*key
	inMemory     map[int64]*message
	out          outcome // what is to be written down
	calls        int     // under way
	stopping     bool
	share        int // messages in the queue of a destination of a Divider, as long as its calls take long

	full         bool      // the last read of all destinations was cut off at its limit: there is more
	catchUpNext  bool      // the next read is one for destinations that are behind
	readScale    [2]int    // factors of the limits of reads: of all destinations, and of those that are behind
	readCount    int       // messages read since the restart
	catchUpReads int64     // reads for destinations that are behind
	rounds       []report  // results of rounds that next has ended
	lookupDue    time.Time // when the worker reads again which keys the table holds
}

const (
	maxCalls      = 512 // at once
	usualShare    = 128 // messages that a destination of a Divider has in its queue, unless it is quick
	maxRoundCalls = 32  // in a round
	maxRead       = 32  // times BatchSize
	maxDue        = 1024
	maxTopics     = 1024
	minKeyShare   = 16

	// The first messages that are read after taking the ownership may have been published by the owner before.
	maxRepeat = 64_000

	// maxRetryAfter is how long a destination or a message waits at most if RetryLater asks for it.
	maxRetryAfter = time.Hour

	// minOutage is how long a destination must have been unavailable before a message is dead-lettered for it, unless MaxOutage is less.
	minOutage = time.Hour
)

func newScheduler(config *RelayConfig, divide func(string) string, memory *memory) *scheduler {
	s := &scheduler{config: config, divide: divide, memory: memory, share: usualShare, destinations: map[string]*destination{}}
	s.restart(nil, time.Time{})
	return s
}

// restart forgets what was read. A destination with a call under way accepts no messages until the call ends.
func (s *scheduler) restart(held []db.HeldBack, now time.Time) {
	called := map[*message]bool{}
	for _, d := range s.destinations {
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

// syncHeld updates the keys from the held rows of the table: it adds keys, sets their times, and frees those without rows.
func (s *scheduler) syncHeld(held []db.HeldBack, now time.Time) {
	known := make(map[db.HeldKey]bool, len(held))
	for _, h := range held {
		known[h.HeldKey] = true
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
		if k.index >= 0 && !known[name] {
			s.free(k)
		}
	}
}

func (s *scheduler) newKey(name db.HeldKey, d *destination) *key {
	k := &key{name: name, to: d, index: -1}
	s.keys[name] = k
	return k
}

// pushWaiting puts a key into the heap of its destination, by its due time.
func (s *scheduler) pushWaiting(k *key) {
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
	s.reschedule(k)
}

// reschedule makes a key ready, has it wait, or forgets it. It does nothing if the key is in a call, waits already, or is from before a
// restart.
func (s *scheduler) reschedule(k *key) {
	switch {
	case k.inCall > 0 || k.index >= 0 || s.keys[k.name] != k:
	case len(k.queue) > 0:
		k.to.ready(k, false)
	case k.held:
		s.pushWaiting(k)
	default:
		delete(s.keys, k.name)
	}
}

// offer gives a message to its destination. It reports whether the message was taken.
func (s *scheduler) offer(d *destination, row *db.Queued) bool {
	name := keyOf(row)
	k := s.keys[name]
	d.offered++
	if k != nil && k.held {
		s.markHeld(d, row)
		if n := len(k.queue); n > 0 && row.Seq < k.queue[n-1].Seq { // committed after later messages of its key: the next read of the key brings it first
			k.due = time.Time{}
			s.evictQueue(k)
			s.reschedule(k)
		}
		return true
	}
	if k != nil && len(k.queue) >= s.keyShare(d) { // a key with very many messages: later ones stay in the table
		k.held, k.due = true, time.Time{}
		s.markHeld(d, row)
		return true
	}
	if row.Bare || !s.hasRoom(d, row.Octets) {
		d.markBehind(row.Seq)
		return false
	}
	if k == nil {
		k = s.newKey(name, d)
	}
	s.enqueue(k, &message{Queued: *row, repeat: s.readCount < maxRepeat})
	return true
}

// markHeld has the table keep a message as held, until its key is read.
func (s *scheduler) markHeld(d *destination, row *db.Queued) {
	s.out.held = append(s.out.held, row.Seq)
	d.marked++
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

// keyShare is how many messages of one key a destination has in memory. The table keeps the others.
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

// release gives back the memory of a message.
func (s *scheduler) release(d *destination, m *message) {
	if s.divide != nil {
		s.memory.release(&d.octets, m.Octets)
		d.wants = 0
	}
}

// destination returns where a topic goes.
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
		d = &destination{name: name, size: s.config.BatchSize, least: s.share}
		if s.divide != nil {
			d.size = min(d.size, s.share)
		}
		s.destinations[name] = d
	}
	s.pin(topic, d)
	return d
}

func (s *scheduler) pin(topic string, d *destination) {
	if s.byTopic[topic] == d {
		return
	}
	s.byTopic[topic] = d
	d.topics = append(d.topics, topic)
}

// tidy has the Divider asked again for the topics of idle destinations, and forgets the idle destinations that are well.
func (s *scheduler) tidy(now time.Time) {
	for name, d := range s.destinations {
		if d.call != nil || d.behind || d.fresh+d.retries > 0 || d.round != nil && len(d.round.refused) > 0 {
			continue
		}
		for _, topic := range d.topics {
			delete(s.byTopic, topic)
		}
		d.topics = nil
		if len(d.waiting) == 0 && (d.isWell() || now.Sub(d.retryAt) > maxRetryAfter) {
			delete(s.destinations, name)
		}
	}
}

// next returns the calls that are to begin.
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
		c := &call{to: d, began: now, single: d.round != nil}
		if c.messages = d.compose(s.callSize(d), s.keeps); len(c.messages) == 0 {
			if d.round != nil && d.round.tried > 0 { // nothing is left to try
				r := report{}
				s.endRound(d, 0, now, &r)
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

// report is the result of a call or a round, for the log and the Observer.
type report struct {
	published, failed int
	found             int   // messages of which a round that has ended counts an attempt
	foundErr          error // of one of these
	err               error // of the call, if it names no message
	pause             time.Duration
}

// inCalls reports whether a message of such a topic is in a call.
func (s *scheduler) inCalls(such func(topic string) bool) bool {
	for _, d := range s.destinations {
		if d.call != nil && slices.ContainsFunc(d.call.messages, func(m *message) bool { return such(m.Topic) }) {
			return true
		}
	}
	return false
}

// isLookupDue reports whether to read which keys the table holds: a person may have changed rows.
func (s *scheduler) isLookupDue(now time.Time) bool {
	return now.After(s.lookupDue)
}

// ended notes what came of a call.
func (s *scheduler) callEnded(c *call, v *verdict, now time.Time) (r report) {
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
		case answer == doubtful && c.single && !v.unavailable && !s.stopping:
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
			s.reschedule(m.key)
		}
	}
	for _, i := range slices.Backward(open) { // to the front of the list, in their order
		if k := c.messages[i].key; len(k.queue) > 0 && k.inCall == 0 {
			d.ready(k, true)
		} else {
			s.reschedule(k)
		}
	}
	if s.stopping {
		return r
	}
	s.afterCall(c, v, &r, again, doubts, now)
	return r
}

// judge decides how a destination goes on after a call.
func (s *scheduler) afterCall(c *call, v *verdict, r *report, again, doubts int, now time.Time) {
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
			s.endRound(d, v.retryAfter, now, r)
		}
		if r.pause == 0 {
			r.pause = s.backOff(d, v.retryAfter, now)
		}
	case c.single:
		over := d.round.accepted == 0 && now.Sub(d.round.began) > s.config.PublishTimeout
		if d.round.tried >= maxRoundCalls || over {
			s.endRound(d, 0, now, r)
		}
	case doubts > 0 && v.panicked:
		d.round = &round{}
	case doubts > 0:
		d.size = max(len(c.messages)/2, 1)
		if d.unnamed++; d.unnamed > 1 {
			d.round = &round{}
		} else {
			r.pause = s.backOff(d, 0, now)
		}
	case r.published+r.failed == 0 && again > 0:
		r.pause = s.backOff(d, 0, now)
	default:
		d.unnamed = 0
		d.fit(now.Sub(c.began), len(c.messages), s.divide != nil, s.config.BatchSize)
	}
	if r.pause > 0 {
		s.giveUp(d, c, v, now)
	}
}

// backOff starts or doubles the backoff of a destination, and returns it. It is at least after.
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

// endRound decides whether the refused messages of a round have failed, because others were accepted, or their destination is
// unavailable, because none was. after is what the Publisher has asked for by RetryLater.
func (s *scheduler) endRound(d *destination, after time.Duration, now time.Time, r *report) {
	was := d.round
	d.round = &round{}
	for _, f := range was.refused {
		f.m.key.inCall--
	}
	switch {
	case was.accepted > 0 || was.repeats && len(was.refused) > 0:
		d.unnamed, d.backoff = 0, 0
		for _, f := range slices.Backward(was.refused) {
			if f.early { // refused before the first was accepted: an outage may have ended since then, so it is tried once more first
				s.requeue(f.m)
				d.ready(f.m.key, true)
				d.round.repeats = true
				continue
			}
			r.found++
			r.foundErr = f.err
			s.fail(f.m, f.err, now)
			s.reschedule(f.m.key)
		}
		if len(was.refused) == 0 {
			d.round = nil
		}
	case len(was.refused) == 0:
		if d.round, d.unnamed = nil, 0; was.again > 0 {
			r.pause = s.backOff(d, after, now)
		}
	default: // the refused go to the end, so that the next round tries others first
		r.pause = s.backOff(d, after, now)
		for _, f := range was.refused {
			s.requeue(f.m)
			if s.isGivenUp(f.m, d.downSince, now) {
				s.bury(f.m, failure{message: f.m.Queued, err: unavailable(f.err), attempts: f.m.Attempts}, now)
			}
			s.reschedule(f.m.key)
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
	if s.divide == nil { // the only destination has the read position of the stream
		d.behind, s.progress = false, progress{}
	}
	if v.unavailable {
		r.pause = s.backOff(d, v.retryAfter, now)
	}
}

// done notes that a message is published.
func (s *scheduler) done(m *message) {
	k := m.key
	s.out.published = append(s.out.published, m.Seq)
	s.forget(m)
	k.failed, k.postponed, k.due = false, time.Time{}, time.Time{}
}

// forget drops a message that is not in a queue from memory.
func (s *scheduler) forget(m *message) {
	delete(s.inMemory, m.Seq)
	s.release(m.key.to, m)
}

// evict drops a message from memory, and has it held in the table.
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

// hold writes down that a message waits, because it has failed or is postponed. The rest of the queue of its key is held as well.
func (s *scheduler) hold(m *message, f failure) {
	k := m.key
	s.out.blamed = append(s.out.blamed, f)
	s.clear(k, m)
	k.held, k.failed, k.due = true, true, f.due
	s.reschedule(k)
}

// evictQueue evicts all messages of a key that are in its queue.
func (s *scheduler) evictQueue(k *key) {
	for _, m := range k.queue {
		k.to.count(m, -1)
		s.evict(m)
	}
	k.queue = nil
}

// clear drops a message from memory, and evicts the rest of the queue of its key.
func (s *scheduler) clear(k *key, m *message) {
	if i := slices.Index(k.queue, m); i >= 0 {
		k.queue = slices.Delete(k.queue, i, i+1)
		k.to.count(m, -1)
	}
	s.forget(m)
	s.evictQueue(k)
}

// bury makes a dead letter of a message. Its key waits until that is written down: otherwise a new owner of the stream could publish
// the message after later ones of its key. A message that cannot be sealed waits.
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
	s.clear(k, m)
	k.held, k.failed, k.postponed, k.due = true, false, time.Time{}, time.Time{}
	s.reschedule(k)
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
func keyOf(m *db.Queued) db.HeldKey {
	if m.Key == "" {
		return db.HeldKey{Topic: m.Topic, Seq: m.Seq}
	}
	return db.HeldKey{Topic: m.Topic, Key: m.Key}
}
