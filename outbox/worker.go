package outbox

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/panics"
	"github.com/idem-go/idem/internal/redelivery"
	"github.com/idem-go/idem/internal/txn"
)

// worker carries out what the scheduler of a stream decides, while this process owns the stream. The calls of the Publisher outlive
// an ownership: what they return counts in the next.
type worker struct {
	config    *RelayConfig
	publisher Publisher
	schedule  *scheduler
	delayed   delayed
	waker     waker
	share     db.Stream
	ended     chan answer
	running   map[*call]*running

	// Of an ownership:
	ownership  *ownership
	topics     *topics
	adopting   bool            // the generation of the topics is to be written
	calling    context.Context // ends when the ownership is lost
	asking     context.Context // ends when the last calls have had their time, after the end of Run
	topicsSeen time.Time
	writtenAt  time.Time
	idle       txn.Pauses
	pollAt     time.Time
}

// running is a call in a goroutine of its own, which may not return.
type running struct {
	over     time.Time // when its context ends
	loggedAt time.Time
}

// answer is what a call has returned.
type answer struct {
	call    *call
	verdict *verdict
	took    time.Duration
}

const (
	firstPoll   = 50 * time.Millisecond // between two reads of an outbox that has just become empty
	writePause  = 50 * time.Millisecond // how long outcomes may wait for more of them, while calls are under way
	hangLimit   = 5 * time.Second       // how long a call may go on after the end of its context
	lastWrite   = 5 * time.Second       // how long the outcomes of the last calls may take to be written down, after the end of Run
	topicsPause = 250 * time.Millisecond
	readLimit   = 6 * time.Minute // more than the server may work
	settleLimit = 30 * time.Second
)

// errHung says that the only destination has a call that does not return. Its messages may be published at any time.
var errHung = errors.New("the Publisher has not returned although its context has ended")

func newWorker(publisher Publisher, config *RelayConfig, memory *memory, share db.Stream, waker waker) *worker {
	w := &worker{config: config, publisher: publisher, waker: waker, share: share, ended: make(chan answer, maxCalls), running: map[*call]*running{}}
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
	w.schedule.seal = config.sealed
	w.schedule.jitter = func(pause time.Duration) time.Duration { return pause - rand.N(pause/4+1) }
	return w
}

// noDestination begins the name of the destination of a topic at which the Divider panics. What it is given fails by that.
const noDestination = "without a Destination: "

// work relays until ctx ends or the ownership is lost.
func (w *worker) work(ctx context.Context, ownership *ownership, own *topics) error {
	calling, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	asking, stopAsking := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAsking()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(w.config.Drain+hangLimit+lastWrite, stopAsking) })()
	w.ownership, w.calling, w.asking, w.schedule.stopping = ownership, calling, asking, false
	w.schedule.keeps = false
	panics.Run(w.config.Logger, "outbox: KeepsOrder of the Publisher", func() { w.schedule.keeps = keepsOrder(w.publisher) })
	w.adopt(own)
	w.adopting, w.delayed, w.topicsSeen = false, delayed{}, time.Time{}
	w.schedule.out = outcome{published: w.schedule.out.published} // the table has what others have done meanwhile
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

// step begins calls, makes a transaction if one is due, or waits for an event.
func (w *worker) step(ctx context.Context) error {
	w.collect(ctx)
	if err := w.begin(ctx); err != nil {
		return err
	}
	if err := w.move(); err != nil {
		return err
	}
	now := time.Now()
	s := w.schedule
	if s.isLookupDue(now) {
		return w.reload(false)
	}
	if w.adopting && !s.inCalls(func(topic string) bool { return !w.topics.has(topic) }) {
		return w.renewTopics()
	}
	look := !now.Before(w.pollAt) || w.isWriteDue(now)
	if p := s.plan(now, look); p != nil || look {
		return w.transact(p)
	}
	return w.wait(ctx)
}

// isWriteDue reports whether outcomes are to be written without waiting for more of them.
func (w *worker) isWriteDue(now time.Time) bool {
	s := w.schedule
	return s.out.size() > 0 && (s.calls == 0 || s.out.size() >= w.config.BatchSize/2 || now.Sub(w.writtenAt) >= writePause)
}

// begin begins calls.
func (w *worker) begin(ctx context.Context) error {
	if !w.ownership.trusted() {
		return errLost
	}
	for _, c := range w.schedule.next(time.Now()) {
		w.publish(c)
	}
	for _, r := range w.schedule.rounds {
		w.observe(ctx, TracePublishedData{Failed: r.found})
	}
	w.schedule.rounds = nil
	return nil
}

func (w *worker) publish(c *call) {
	publisher := w.publisher
	if strings.HasPrefix(c.to.name, noDestination) {
		publisher = PublisherFunc(func(ctx context.Context, messages []Message) error {
			w.publisher.(Divider).Destination(messages[0].Topic)
			return w.publisher.Publish(ctx, messages)
		})
	}
	repeated := map[string]bool{}
	for _, m := range c.messages {
		if m.repeat {
			repeated[m.ID] = true
		}
		m.repeat = true
	}
	calling, cancel := context.WithTimeout(redelivery.With(w.calling, repeated), w.config.PublishTimeout)
	w.running[c] = &running{over: c.began.Add(w.config.PublishTimeout)}
	messages := messagesOf(c)
	go func() {
		defer cancel()
		began := time.Now()
		err := publishSafely(calling, publisher, messages)
		w.ended <- answer{c, judge(messages, err, calling.Err() != nil), time.Since(began)}
	}()
}

func messagesOf(c *call) []Message {
	messages := make([]Message, len(c.messages))
	for i, m := range c.messages {
		messages[i] = messageOf(&m.Queued)
	}
	return messages
}

// collect takes the answers of all calls that have ended.
func (w *worker) collect(ctx context.Context) {
	for len(w.ended) > 0 {
		w.end(ctx, <-w.ended)
	}
}

func (w *worker) end(ctx context.Context, a answer) {
	delete(w.running, a.call)
	now := time.Now()
	if w.schedule.out.size() == 0 {
		w.writtenAt = now
	}
	for i, reply := range a.verdict.replies {
		if reply.kind == refused {
			panics.Log(w.config.Logger, "outbox: a function of the Publisher's", reply.err, "message", a.call.messages[i].ID)
		}
	}
	r := w.schedule.callEnded(a.call, a.verdict, now)
	w.poll(now, firstPoll)
	w.observe(ctx, TracePublishedData{Given: len(a.call.messages), Published: r.published, Failed: r.failed, Duration: a.took, Err: r.err})
	w.observe(ctx, TracePublishedData{Failed: r.found})
	if r.err == nil && r.found > 0 {
		r.err = r.foundErr
	}
	if ctx.Err() == nil && a.call.to.isNews(r.err, now) {
		w.config.Logger.WarnContext(ctx, "outbox: messages could not be published, and are tried again",
			"destination", a.call.to.name, "error", r.err, "pause", r.pause)
	}
}

// observe tells the Observer of a call, or of attempts that count after a round.
func (w *worker) observe(ctx context.Context, data TracePublishedData) {
	if w.config.Observer == nil {
		return
	}
	if data.Given > 0 || data.Failed > 0 {
		data.Cause = idem.CauseOf(data.Err)
		panics.Run(w.config.Logger, "outbox: the Observer", func() { w.config.Observer.TracePublished(ctx, data) })
	}
}

// poll has the outbox read again after a pause.
func (w *worker) poll(now time.Time, pause time.Duration) {
	w.idle = txn.Pauses{Current: pause, Limit: w.config.Poll}
	if at := now.Add(pause); at.Before(w.pollAt) || w.pollAt.IsZero() {
		w.pollAt = at
	}
}

// transact writes outcomes down and reads, in one round trip.
func (w *worker) transact(p *reading) error {
	began := time.Now()
	s := w.schedule
	written := s.out.requests(w.config, began)
	requests := []txn.Request{begin, &db.LimitRelay{}}
	if len(written) > 0 {
		requests = append(append(requests, w.ownership.fence()...), written...)
	}
	seen := &db.SeeTopics{}
	seesTopics := began.Sub(w.topicsSeen) >= topicsPause
	if seesTopics {
		requests = append(requests, seen)
	}
	next := w.delayed.asks(began)
	if next != nil {
		requests = append(requests, next)
	}
	if p != nil {
		if p.held != nil {
			requests = append(requests, p.held)
		}
		if p.list != nil { // before the read: its snapshot has what a writer that is gone has committed
			requests = append(requests, p.list)
		}
		if p.read != nil {
			p.read.Stream = w.share
			requests = append(requests, p.read)
		}
	}
	if err := w.ask(readLimit, append(requests, commit)...); err != nil {
		return err
	}
	w.wrote()
	now := time.Now()
	if next != nil {
		w.delayed.told(next, now)
	}
	if p != nil {
		s.read(p, now.Sub(began), now)
	}
	if p != nil && p.read != nil {
		if len(p.read.Messages) > 0 {
			w.idle.Current = firstPoll
		}
		w.pollAt = now.Add(w.idle.Next())
	} else if !now.Before(w.pollAt) {
		w.pollAt = now.Add(w.idle.Next())
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

// wrote notes that the outcomes are written down.
func (w *worker) wrote() {
	buried := w.schedule.out.buried
	w.schedule.out = outcome{}
	w.writtenAt = time.Now()
	if w.config.OnDead == nil {
		return
	}
	for i := range buried {
		panics.Run(w.config.Logger, "outbox: OnDead", func() { w.config.OnDead(buried[i].dead()) })
	}
}

// settle writes down all outcomes, whether or not ctx has ended.
func (w *worker) settle(more ...txn.Request) error {
	requests := w.schedule.out.requests(w.config, time.Now())
	if len(requests) > 0 {
		requests = append(w.ownership.fence(), requests...)
	}
	if requests = append(requests, more...); len(requests) == 0 {
		return nil
	}
	requests = append([]txn.Request{begin, &db.LimitRelay{}}, requests...)
	if err := w.ask(settleLimit, append(requests, commit)...); err != nil {
		return err
	}
	w.wrote()
	return nil
}

// reload reads which keys the table holds. Anew, it begins with everything that is there.
func (w *worker) reload(anew bool) error {
	if err := w.settle(); err != nil {
		return err
	}
	held := &db.ListHeld{Stream: w.share}
	began := time.Now()
	if err := w.ask(readLimit, begin, &db.LimitRelay{}, held, commit); err != nil {
		return err
	}
	now := time.Now()
	if anew {
		w.schedule.restart(held.Rows, now)
		w.pollAt = time.Time{}
		w.poll(now, firstPoll)
	} else {
		w.schedule.syncHeld(held.Rows, now)
	}
	w.schedule.lookupDue = now.Add(max(wholePause, wholeShare*now.Sub(began)))
	return nil
}

// move inserts delayed messages in the outbox that are due.
func (w *worker) move() error {
	move := w.delayed.moves(time.Now(), w.config.BatchSize)
	if move == nil {
		return nil
	}
	began := time.Now()
	if err := w.ask(readLimit, begin, &db.LimitRelay{}, move, commit); err != nil {
		return err
	}
	w.delayed.moved(move, time.Since(began), time.Now())
	w.pollAt, w.idle.Current = time.Now(), firstPoll
	return nil
}

// wait waits until a call has ended, or there may be something to do.
func (w *worker) wait(ctx context.Context) error {
	now := time.Now()
	until := w.schedule.wake(now, w.pollAt)
	if due := w.delayed.due; !due.IsZero() && due.Before(until) {
		until = due
	}
	if at := w.writtenAt.Add(writePause); w.schedule.out.size() > 0 && at.Before(until) {
		until = at
	}
	if at := now.Add(signPause); at.Before(until) {
		until = at
	}
	if err := w.watchHung(now, &until); err != nil {
		return err
	}
	timer := time.NewTimer(max(until.Sub(now), 0))
	defer timer.Stop()
	select {
	case a := <-w.ended:
		w.end(ctx, a)
	case <-w.waker:
		w.pollAt, w.idle.Current = time.Now(), firstPoll
	case <-timer.C:
		return w.ownership.signIfDue(w.asking)
	case <-ctx.Done():
	}
	return nil
}

// watchHung logs calls that do not return. If there is one destination only, the ownership is left to another process.
func (w *worker) watchHung(now time.Time, until *time.Time) error {
	for c, run := range w.running {
		switch limit := run.over.Add(hangLimit); {
		case now.Before(limit):
			if limit.Before(*until) {
				*until = limit
			}
		case w.schedule.divide == nil:
			return errors.Join(errHung, w.settle())
		case now.Sub(run.loggedAt) > signPause:
			run.loggedAt = now
			w.config.Logger.Error("outbox: the Publisher has not returned although its context has ended: nothing else is published to this destination",
				"topic", c.messages[0].Topic)
		}
	}
	return nil
}

// awaitHung waits for a call of the only destination that has not returned. Another process may relay meanwhile, but not this one: there
// would be two calls.
func (w *worker) awaitHung(ctx context.Context) {
	for w.schedule.divide == nil && len(w.running) > 0 && ctx.Err() == nil {
		select {
		case a := <-w.ended:
			w.end(ctx, a)
			continue
		case <-ctx.Done():
		case <-time.After(hangLimit):
			w.config.Logger.Error("outbox: the Publisher has not returned although its context has ended: this process publishes nothing until it does, or is started again",
				"relay", w.config.Name)
		}
	}
}

// stop waits for the calls under way, each of which is written down when it ends. Their contexts end after RelayConfig.Drain.
func (w *worker) stop(ctx context.Context, cancel context.CancelFunc) error {
	w.schedule.stopping = true
	drain, limit := time.NewTimer(w.config.Drain), (<-chan time.Time)(nil)
	defer drain.Stop()
	for {
		w.collect(ctx)
		if err := w.settle(); err != nil || len(w.running) == 0 {
			return err
		}
		sign := time.NewTimer(signPause)
		select {
		case a := <-w.ended:
			w.end(ctx, a)
		case <-sign.C:
			if err := w.ownership.signIfDue(w.asking); err != nil {
				return err
			}
		case <-drain.C:
			cancel()
			limit = time.After(hangLimit)
		case <-limit:
			return nil
		}
		sign.Stop()
	}
}

func (w *worker) ask(limit time.Duration, requests ...txn.Request) error {
	if err := w.ownership.signIfDue(w.asking); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeoutCause(w.asking, limit, errSlow)
	defer cancel()
	err := w.ownership.ask(bounded, requests...)
	if err == nil && w.ownership.session.Load() != nil {
		w.ownership.seen.Store(time.Now().UnixNano())
	}
	return err
}

// adopt takes the topics by which the stream is read.
func (w *worker) adopt(own *topics) {
	w.topics = own
	w.share.Topics, w.share.Foreign = own.like, own.foreign
}

// changeTopics goes on by the topics of all relays as they are now. What is called goes on meanwhile: other relays wait for it only where they are
// given a topic of it.
func (w *worker) changeTopics() error {
	list := &db.ListTopics{}
	if err := w.ask(settleLimit, list); err != nil {
		return err
	}
	own, recorded, err := w.config.compare(list.Rows)
	if err != nil || w.config.Name != "" && recorded == 0 {
		return errTopics
	}
	same := slices.Equal(own.like, w.topics.like) && slices.Equal(own.foreign, w.topics.foreign)
	w.adopt(own)
	w.adopting = true
	if same {
		return nil
	}
	return w.reload(true)
}

// renewTopics says that this process works by the topics of a generation.
func (w *worker) renewTopics() error {
	o := w.ownership
	take := &db.TakeLanes{Relay: w.config.Name, Instance: o.instance, Generation: w.topics.generation, Lanes: o.lanes}
	if err := w.settle(take); err != nil {
		return err
	}
	if len(take.Rows) < len(o.lanes) {
		return errLost
	}
	w.adopting = false
	return nil
}
