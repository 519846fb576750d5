package checkout

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/torture/config"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/unreliable"
	"github.com/idem-go/idem/operation"
)

// Work calls operations and executes them with a Worker until stop ends. If c.Finish is set, it
// only finishes the operations that other workers left.
func Work(stop context.Context, c *config.Config, pools []*pgxpool.Pool, writer *history.Writer) error {
	s := &shop{Config: c, pools: pools, pool: pools[0], bank: unreliable.NewClient(c.Bank, c.Slot), history: writer}
	if c.Finish > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), c.Finish)
		defer cancel()
		return s.finishAll(ctx)
	}
	s.release = releaseAt(c.Seed, history.Now()-c.Start)
	s.define()
	worker := operation.WorkerConfig{Concurrency: 8, Poll: time.Second / 2, Drain: time.Second, Logger: slog.New(slog.DiscardHandler)}
	ended := make(chan error, 1)
	working, cancel := context.WithCancel(stop)
	go func() { ended <- operation.NewWorker(s.pool, worker, s.checkout, s.part).Run(working) }()
	var full atomic.Bool
	full.Store(true) // until watch has an answer: a process that soon dies must not fill the queue
	go s.watch(working, &full)
	var callers sync.WaitGroup
	for range c.Goroutines {
		callers.Go(func() {
			for stop.Err() == nil {
				if full.Load() {
					time.Sleep(50 * time.Millisecond)
					continue
				}
				pause(s.call())
			}
		})
	}
	callers.Wait()
	cancel()
	err := <-ended
	s.note(journal.Event{Kind: journal.KindExit, Op: c.Op(0)})
	return err
}

// watch sets full while callers must not begin new operations, because many are running or due. In
// a longer queue, operations would wait longer than the limits of the audit allow. The limits grow
// with Config.Keys. Walk-ins do not count, because a walk-in may wait for a caller without limit.
// While the database does not answer, the last answer stays valid.
func (s *shop) watch(ctx context.Context, full *atomic.Bool) {
	const look = "SELECT count(*) >= $1 OR count(*) FILTER (WHERE owner IS NULL AND wake_at <= now()) >= $2" +
		" FROM idem.operations WHERE state = 'running' AND kind <> 'child' AND name <> 'walk-in'"
	mostRunning, mostDue := 8*s.Keys, 8+s.Keys/4
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		var busy bool
		if err := s.pool.QueryRow(bounded, look, mostRunning, mostDue).Scan(&busy); err == nil {
			full.Store(busy)
		}
		cancel()
		time.Sleep(50 * time.Millisecond)
	}
}

// pause delays a caller after a call without an answer, so that it does not spin.
func pause(answered bool) {
	if !answered {
		time.Sleep(time.Duration(1+rand.IntN(20)) * time.Millisecond)
	}
}

// releaseAt returns the release that is deployed at the given age of a run. Another release,
// possibly an older one, is deployed every 1.5 s. A process keeps the release with which it
// started.
func releaseAt(seed uint64, age time.Duration) int {
	const lasts = 1500 * time.Millisecond
	return rand.New(rand.NewPCG(seed, 1<<32+uint64(max(age, 0)/lasts))).IntN(journal.Releases)
}

// key returns a random key. Keys change with time; a third of the calls use a key that may be
// older.
func (s *shop) key() string {
	age := int((history.Now() - s.Start) / config.KeyLife)
	if rand.IntN(3) == 0 {
		age -= rand.IntN(6)
	}
	return fmt.Sprintf("key-%d-%d", max(age, 0), rand.IntN(s.Keys))
}

// call makes one call, and reports whether it was answered. For a WalkIn it repeats short calls
// until one is answered.
func (s *shop) call() (answered bool) {
	verb, key := journal.Do, s.key()
	plan := journal.PlanOf(s.Seed, key)
	if plan.WalkIn {
		return s.insist(&plan)
	}
	if rand.IntN(5) == 0 {
		verb = journal.Start
	}
	return s.once(verb, &plan, s.patience())
}

// insist makes up to 30 calls until one is answered. Their contexts end long before the bank
// answers.
func (s *shop) insist(plan *journal.Plan) (answered bool) {
	const most = 30
	for n := 0; n < most && !answered; n++ {
		answered = s.once(journal.Do, plan, time.Duration(40+rand.IntN(40))*time.Millisecond)
	}
	return answered
}

// patience returns the timeout of a call.
func (s *shop) patience() time.Duration {
	if rand.IntN(4) == 0 { // the caller leaves early
		return time.Duration(rand.IntN(100)) * time.Millisecond
	}
	return time.Duration(rand.IntN(4000)) * time.Millisecond
}

// once makes one call and logs when it began, when it ended, and its answer.
func (s *shop) once(verb string, plan *journal.Plan, patience time.Duration) (answered bool) {
	name, key := s.next(), plan.Key
	s.note(journal.Event{Kind: journal.KindCall, Op: name, Verb: verb, Key: key})
	e, parked := s.ask(name, verb, plan, patience)
	e.Kind, e.Op, e.Verb, e.Key = journal.KindReturn, name, verb, key
	s.note(e)
	s.meddle(&e, parked)
	return e.Answer != nil
}

// callName is the context key under which a call carries its history.Op.
type callName struct{}

// ask makes the call. It uses a goroutine of its own because the function may panic.
func (s *shop) ask(name history.Op, verb string, plan *journal.Plan, patience time.Duration) (e journal.Event, parked *operation.ParkedError) {
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), callName{}, name), patience)
	defer cancel()
	answered := make(chan struct{})
	go func() {
		defer func() {
			if p := recover(); p != nil && p != any(errFlaky) {
				panic(p)
			}
			close(answered)
		}()
		pool := s.pools[rand.IntN(len(s.pools))]
		if verb == journal.Start {
			e = s.start(ctx, pool, plan)
			return
		}
		wait := idem.WithWait(time.Duration(rand.IntN(3)) * 500 * time.Millisecond)
		result, err := s.definitionOf(plan).Do(ctx, pool, scope, plan.Key, hashOf(plan.Key), *plan, wait, idem.WithObserver(watch{s}))
		e, parked = answerOf(result, err), parkedOf(err)
	}()
	<-answered
	return e, parked
}

const scope = "operations"

func hashOf(key string) idem.Hash { return idem.HashBytes([]byte(key)) }

// start starts the operation in a transaction and leaves its execution to a Worker.
func (s *shop) start(ctx context.Context, pool *pgxpool.Pool, plan *journal.Plan) journal.Event {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return journal.Event{}
	}
	defer tx.Rollback(context.Background())
	id, err := s.definitionOf(plan).Start(ctx, tx, scope, plan.Key, hashOf(plan.Key), *plan)
	if err == nil {
		err = tx.Commit(ctx)
	}
	if err != nil {
		return journal.Event{}
	}
	return journal.Event{Operation: id}
}

// answerOf converts the results of a call into its return event.
func answerOf(result idem.Result, err error) journal.Event {
	if parked := parkedOf(err); parked != nil {
		return journal.Event{Parked: true, Operation: parked.OperationID}
	}
	if err != nil {
		return journal.Event{}
	}
	e := journal.Event{Operation: result.ExecutionID, Rejected: result.Rejected, Answer: new(journal.Answer)}
	_ = json.Unmarshal(result.Body, e.Answer) // the checker notices an empty answer
	return e
}

// watch is an observer that logs which calls wait for their key.
type watch struct{ *shop }

func (w watch) TraceStart(ctx context.Context, _ idem.TraceStartData) context.Context { return ctx }

func (w watch) TraceEvent(ctx context.Context, data idem.TraceEventData) {
	if name, ok := ctx.Value(callName{}).(history.Op); ok && data.Event == idem.EventWaiting {
		w.note(journal.Event{Kind: journal.KindWait, Op: name})
	}
}

func (w watch) TraceEnd(context.Context, idem.TraceEndData) {}
