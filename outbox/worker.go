package outbox

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/panics"
	"github.com/idem-go/idem/internal/redelivery"
	"github.com/idem-go/idem/internal/txn"
)

// worker carries out the decisions of the scheduler of a stream, while this process owns the
// stream. A call of the Publisher may last longer than the ownership. Its result is then stored
// when the process next owns the stream.
type worker struct {
	pool      *pgxpool.Pool
	config    *RelayConfig
	publisher Publisher
	schedule  *scheduler
	delayed   delayed
	waker     waker
	stream    db.Stream // the lanes whose number, modulo the number of streams, is the number of this stream
	lanes     []int
	ended     chan endedCall

	// The state of the current ownership:
	ownership   *ownership
	topics      *topics
	adopting    bool            // the worker uses changed topics, and has yet to store their generation
	calling     context.Context // the context of the calls; ends when the ownership is lost
	asking      context.Context // the context of database queries; ends after Run has had time to store the last outcomes
	topicsSeen  time.Time
	storedAt    time.Time
	pollBackoff txn.Pauses
	pollAt      time.Time
}

type endedCall struct {
	call   *call
	result *result
}

const (
	minPoll     = 50 * time.Millisecond // between two reads of the outbox, when it has just become empty
	storePause  = 50 * time.Millisecond // how long outcomes may wait for others while calls are in progress
	hangTimeout = 5 * time.Second       // how long a call may continue after its context has ended
	lastStore   = 5 * time.Second       // how long storing the last outcomes may take after the end of Run
	topicsPause = 250 * time.Millisecond
)

// errHung says that a call to the only destination does not return. The call may still publish its
// messages at any time.
var errHung = errors.New("the Publisher has not returned although its context has ended")

func newWorker(pool *pgxpool.Pool, publisher Publisher, config *RelayConfig, memory *memory, number int) *worker {
	w := &worker{
		pool: pool, config: config, publisher: publisher, waker: newWaker(), ended: make(chan endedCall, maxCalls),
		stream: db.Stream{Number: number, Of: config.Streams},
	}
	for lane := number; lane < db.Lanes; lane += config.Streams {
		w.lanes = append(w.lanes, lane)
	}
	var divide func(topic string) string
	if divider, ok := publisher.(Divider); ok {
		divide = func(topic string) (name string) {
			if panics.Try(func() error { name = divider.Destination(topic); return nil }) != nil {
				return noDestination + topic
			}
			return name
		}
	}
	w.schedule = newScheduler(config, divide, memory)
	w.schedule.jitter = func(pause time.Duration) time.Duration { return pause - rand.N(pause/4+1) }
	return w
}

// noDestination is the prefix of the name of a destination that has a topic for which
// Divider.Destination panics. Each call for this destination panics in the same way, so that its
// messages fail.
const noDestination = "without a Destination: "

// work relays until ctx is done or the ownership is lost.
func (w *worker) work(ctx context.Context, ownership *ownership, own *topics) error {
	calling, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	asking, stopAsking := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAsking()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(w.config.Drain+hangTimeout+lastStore, stopAsking) })()
	w.ownership, w.calling, w.asking = ownership, calling, asking
	w.schedule.stopping, w.schedule.keepsOrder = false, false
	panics.Run(w.config.Logger, "outbox: KeepsOrder of the Publisher", func() {
		w.schedule.keepsOrder = keepsOrder(w.publisher)
	})
	w.setTopics(own)
	w.adopting, w.delayed, w.topicsSeen = false, delayed{}, time.Time{}
	// Other processes may have relayed in between. So of the pending outcomes only published messages
	// are kept.
	w.schedule.pending = pendingWrites{published: w.schedule.pending.published}
	w.schedule.restart(nil, time.Now())
	w.collect(ctx)
	err := w.reload(true)
	for err == nil && ctx.Err() == nil {
		err = w.step(ctx)
	}
	if err == nil {
		err = w.stop(ctx, cancel)
	}
	return err
}

// step begins calls, runs a transaction if one is due, or else waits for an event.
func (w *worker) step(ctx context.Context) error {
	w.collect(ctx)
	if err := w.begin(ctx); err != nil {
		return err
	}
	if err := w.moveDelayed(); err != nil {
		return err
	}
	now := time.Now()
	s := w.schedule
	if now.After(s.nextHeldList) {
		return w.reload(false)
	}
	if w.adopting && !s.callsTopic(func(topic string) bool { return !w.topics.has(topic) }) {
		return w.renewTopics()
	}
	due := !now.Before(w.pollAt) || w.mustStore(now)
	if p := s.plan(now, due); p != nil || due {
		return w.read(p)
	}
	return w.wait(ctx)
}

// mustStore reports whether to store the pending outcomes now instead of waiting for more.
func (w *worker) mustStore(now time.Time) bool {
	s := w.schedule
	n := s.pending.size()
	return n > 0 && (s.calls == 0 || n >= w.config.BatchSize/2 || now.Sub(w.storedAt) >= storePause)
}

// begin starts the calls that the scheduler allows. It fails if the ownership is lost.
func (w *worker) begin(ctx context.Context) error {
	if !w.ownership.isTrusted() {
		return errLost
	}
	for _, c := range w.schedule.next(time.Now()) {
		w.publish(c)
	}
	w.report(ctx)
	return nil
}

// publish starts a goroutine that calls the Publisher. The call may never return.
func (w *worker) publish(c *call) {
	publisher := w.publisher
	if strings.HasPrefix(c.destination.name, noDestination) {
		publisher = PublisherFunc(func(ctx context.Context, messages []Message) error {
			w.publisher.(Divider).Destination(messages[0].Topic)
			return w.publisher.Publish(ctx, messages)
		})
	}
	messages, repeated := make([]Message, len(c.messages)), map[string]bool{}
	for i, m := range c.messages {
		messages[i] = messageOf(&m.Queued)
		if m.repeat {
			repeated[m.ID] = true
		}
		m.repeat = true
	}
	calling, cancel := context.WithTimeout(redelivery.With(w.calling, repeated), w.config.PublishTimeout)
	go func() {
		began, err := time.Now(), panics.Goexit()
		defer func() { // also if Publish calls runtime.Goexit
			r := newResult(messages, err, calling.Err() != nil)
			r.took = time.Since(began)
			cancel()
			w.ended <- endedCall{c, r}
		}()
		err = publishSafely(calling, publisher, messages)
	}()
}

// collect takes the results of all calls that have ended.
func (w *worker) collect(ctx context.Context) {
	for len(w.ended) > 0 {
		w.take(ctx, <-w.ended)
	}
}

func (w *worker) take(ctx context.Context, e endedCall) {
	now := time.Now()
	if w.schedule.pending.size() == 0 {
		w.storedAt = now
	}
	for i, m := range e.result.messages {
		if m.status == refused {
			panics.Log(w.config.Logger, "outbox: a function of the Publisher", m.err, "message", e.call.messages[i].ID)
		}
	}
	w.schedule.callEnded(e.call, e.result, now)
	w.pollSoon(now)
	w.report(ctx)
}

// report passes the reports of the scheduler to the Observer and the log.
func (w *worker) report(ctx context.Context) {
	reports := w.schedule.reports
	w.schedule.reports = nil
	for _, r := range reports {
		if w.config.Observer != nil {
			r.data.Cause = idem.CauseOf(r.data.Err)
			panics.Run(w.config.Logger, "outbox: the Observer", func() { w.config.Observer.TracePublished(ctx, r.data) })
		}
		if ctx.Err() == nil && r.destination.shouldLog(r.err, time.Now()) {
			w.config.Logger.WarnContext(ctx, "outbox: messages were not published; retrying",
				"destination", r.destination.name, "error", r.err, "pause", r.pause)
		}
	}
}

// pollSoon makes the next read of the outbox happen within minPoll.
func (w *worker) pollSoon(now time.Time) {
	w.pollBackoff = txn.Pauses{Current: minPoll, Limit: w.config.Poll}
	if at := now.Add(minPoll); at.Before(w.pollAt) || w.pollAt.IsZero() {
		w.pollAt = at
	}
}

// pollNow makes the next read of the outbox happen at once.
func (w *worker) pollNow() { w.pollAt, w.pollBackoff.Current = time.Now(), minPoll }

// read stores all pending outcomes and makes the reads of p, in one transaction and one round trip.
// If p is nil, it reads no messages.
func (w *worker) read(p *readPlan) error {
	began := time.Now()
	var requests []txn.Request
	seen := &db.SeeTopics{}
	seesTopics := began.Sub(w.topicsSeen) >= topicsPause
	if seesTopics {
		requests = append(requests, seen)
	}
	next := w.delayed.query(began)
	if next != nil {
		requests = append(requests, next)
	}
	if p != nil && p.held != nil {
		requests = append(requests, p.held)
	}
	if p != nil && p.list != nil { // before the read, which then sees all rows of writers that are no longer listed
		requests = append(requests, p.list)
	}
	if p != nil && p.read != nil {
		p.read.Stream = w.stream
		requests = append(requests, p.read)
	}
	if err := w.transact(readTimeout, requests...); err != nil {
		return err
	}
	now := time.Now()
	if next != nil {
		w.delayed.queried(next, now)
	}
	if p != nil {
		w.schedule.apply(p, now.Sub(began), now)
	}
	hasRead := p != nil && p.read != nil
	if hasRead && len(p.read.Messages) > 0 {
		w.pollBackoff.Current = minPoll
	}
	if hasRead || !now.Before(w.pollAt) {
		w.pollAt = now.Add(w.pollBackoff.Next())
	}
	if !seesTopics {
		return nil
	}
	w.topicsSeen = began
	if seen.Generation != w.topics.generation {
		return w.changeTopics()
	}
	return nil
}

// transact runs a transaction that stores all pending outcomes and then sends requests. It does
// nothing if there are neither outcomes nor requests. It does not depend on the context of Run, so
// that outcomes can be stored after the end of that context.
func (w *worker) transact(timeout time.Duration, requests ...txn.Request) error {
	if stores := w.schedule.pending.requests(w.config, time.Now()); len(stores) > 0 {
		requests = slices.Concat(w.ownership.fence(), stores, requests)
	}
	if len(requests) == 0 {
		return nil
	}
	if err := w.ask(timeout, inTransaction(requests...)...); err != nil {
		return err
	}
	dead := w.schedule.pending.dead
	w.schedule.pending = pendingWrites{}
	w.storedAt = time.Now()
	if w.config.OnDead != nil {
		for i := range dead {
			panics.Run(w.config.Logger, "outbox: OnDead", func() { w.config.OnDead(dead[i].deadLetter()) })
		}
	}
	return nil
}

// settle stores all pending outcomes.
func (w *worker) settle() error { return w.transact(writeTimeout) }

// reload reads which keys have held rows in the table. If restart is true, the scheduler restarts
// and reads the stream from the beginning.
func (w *worker) reload(restart bool) error {
	held := &db.ListHeld{Stream: w.stream}
	began := time.Now()
	if err := w.transact(readTimeout, held); err != nil {
		return err
	}
	now := time.Now()
	if restart {
		w.schedule.restart(held.Rows, now)
		w.pollAt = time.Time{}
		w.pollSoon(now)
	} else {
		w.schedule.syncHeld(held.Rows, now)
	}
	w.schedule.nextHeldList = now.Add(max(rereadPause, rereadShare*now.Sub(began)))
	return nil
}

// moveDelayed inserts delayed messages that are due into the outbox. It uses a separate
// transaction, to hold the lock of moves only briefly: only one process at a time can have that
// lock.
func (w *worker) moveDelayed() error {
	move := w.delayed.move(time.Now(), w.config.BatchSize)
	if move == nil {
		return nil
	}
	began := time.Now()
	if err := w.ask(readTimeout, inTransaction(move)...); err != nil {
		return err
	}
	w.delayed.moved(move, time.Since(began), time.Now())
	w.pollNow()
	return nil
}

// wait waits until a call has ended or something else may be due.
func (w *worker) wait(ctx context.Context) error {
	now := time.Now()
	until := earlier(w.schedule.wake(now, w.pollAt), now.Add(heartbeatPause))
	if !w.delayed.due.IsZero() {
		until = earlier(until, w.delayed.due)
	}
	if w.schedule.pending.size() > 0 {
		until = earlier(until, w.storedAt.Add(storePause))
	}
	hang, err := w.checkHung(now)
	if err != nil {
		return err
	}
	select {
	case e := <-w.ended:
		w.take(ctx, e)
	case <-w.waker:
		w.pollNow()
	case <-time.After(earlier(until, hang).Sub(now)):
		return w.ownership.heartbeatIfDue(w.asking)
	case <-ctx.Done():
	}
	return nil
}

// checkHung handles calls that have not returned within hangTimeout after the end of their context.
// Without a Divider it returns an error, so that another process can take over. With a Divider it
// logs the call. The result next is the earliest time at which another call may exceed the limit.
func (w *worker) checkHung(now time.Time) (next time.Time, err error) {
	next = now.Add(heartbeatPause)
	for _, d := range w.schedule.destinations {
		if d.call == nil {
			continue
		}
		limit := d.call.began.Add(w.config.PublishTimeout + hangTimeout)
		switch {
		case now.Before(limit):
			next = earlier(next, limit)
		case w.schedule.divide == nil:
			return next, errors.Join(errHung, w.settle())
		case now.Sub(d.call.loggedAt) > heartbeatPause:
			d.call.loggedAt = now
			w.config.Logger.Error("outbox: the Publisher has not returned although its context has ended; "+
				"no other message is published to this destination", "topic", d.call.messages[0].Topic)
		}
	}
	return next, nil
}

// awaitHung waits for a hung call to the only destination. Meanwhile another process may relay the
// stream. This process must not, because its next call could overtake the hung one.
func (w *worker) awaitHung(ctx context.Context) {
	for w.schedule.divide == nil && w.schedule.calls > 0 && ctx.Err() == nil {
		select {
		case e := <-w.ended:
			w.take(ctx, e)
		case <-ctx.Done():
		case <-time.After(hangTimeout):
			w.config.Logger.Error("outbox: the Publisher has not returned although its context has ended; "+
				"this process publishes nothing until it returns; fix the Publisher or restart the process",
				"relay", w.config.Name)
		}
	}
}

// stop waits for the calls in progress and stores their outcomes. After RelayConfig.Drain it
// cancels the calls, and hangTimeout later it returns without them.
func (w *worker) stop(ctx context.Context, cancel context.CancelFunc) error {
	w.schedule.stopping = true
	drain, limit := time.After(w.config.Drain), (<-chan time.Time)(nil)
	for {
		w.collect(ctx)
		if err := w.settle(); err != nil || w.schedule.calls == 0 {
			return err
		}
		select {
		case e := <-w.ended:
			w.take(ctx, e)
		case <-time.After(heartbeatPause):
			if err := w.ownership.heartbeatIfDue(w.asking); err != nil {
				return err
			}
		case <-drain:
			cancel()
			limit = time.After(hangTimeout)
		case <-limit:
			return nil
		}
	}
}

// ask makes one round trip with the session of the ownership, or with a connection of the pool.
func (w *worker) ask(timeout time.Duration, requests ...txn.Request) error {
	if err := w.ownership.heartbeatIfDue(w.asking); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeoutCause(w.asking, timeout, errSlow)
	defer cancel()
	err := w.ownership.Query(bounded, requests...)
	if err == nil && w.ownership.session.Load() != nil {
		w.ownership.seen.Store(time.Now().UnixNano())
	}
	return err
}

func (w *worker) setTopics(own *topics) {
	w.topics = own
	w.stream.Topics, w.stream.Foreign = like(own.own), like(own.others)
}

// changeTopics uses the recorded topics of all relays after a change. Calls in progress continue.
// If such a call has a topic that now belongs to another relay, that relay waits until the call
// ends.
func (w *worker) changeTopics() error {
	list := &db.ListTopics{}
	if err := w.ask(writeTimeout, list); err != nil {
		return err
	}
	own, recorded, err := w.config.compare(list.Rows)
	if err != nil || w.config.Name != "" && recorded == 0 {
		return errTopics
	}
	same := slices.Equal(own.own, w.topics.own) && slices.Equal(own.others, w.topics.others)
	w.setTopics(own)
	w.adopting = true
	if same {
		return nil
	}
	return w.reload(true)
}

// renewTopics stores that this process uses the latest recorded topics of all relays.
func (w *worker) renewTopics() error {
	o := w.ownership
	take := &db.TakeLanes{Relay: w.config.Name, Instance: o.instance, Generation: w.topics.generation, Lanes: o.lanes}
	if err := w.transact(writeTimeout, take); err != nil {
		return err
	}
	if len(take.Rows) < len(o.lanes) {
		return errLost
	}
	w.adopting = false
	return nil
}
