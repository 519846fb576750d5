package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/torture/audit"
	"github.com/idem-go/idem/lab/torture/bank"
	"github.com/idem-go/idem/lab/torture/broker"
	"github.com/idem-go/idem/lab/torture/check"
	"github.com/idem-go/idem/lab/torture/cluster"
	"github.com/idem-go/idem/lab/torture/config"
	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/inquiry"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/ledger"
	"github.com/idem-go/idem/lab/torture/letter"
	"github.com/idem-go/idem/lab/torture/report"
	"github.com/idem-go/idem/lab/torture/rule"
	"github.com/idem-go/idem/lab/torture/workerset"
)

// leg is a run on one set of servers.
type leg struct {
	*flags
	name     string
	dir      string
	duration time.Duration
	// perform starts the servers, runs and judges the leg, and stops the servers.
	perform func(ctx context.Context) (*report.Leg, error)

	work    fault.Work
	quiet   bool // inject no faults at all
	direct  bool // messages are handled without a broker
	servers *cluster.Cluster
	bank    *bank.Bank     // set for operations
	broker  *broker.Broker // set for messages

	// inject injects faults until ctx ends, logs them, and heals everything. It may be nil.
	inject func(ctx context.Context, workers fault.Workers, log func(fault.Event)) error

	mu       sync.Mutex // guards faults
	faults   []fault.Event
	failures []string      // errors that do not prevent a check
	start    time.Duration // when the workers started
	until    time.Duration // the end of the injection of faults
	calm     time.Duration // when calmDown began the calm period at the end of the run
	stop     time.Duration // the end of the calm period
}

// errUnreadable reports that the server runs but its tables cannot be read.
var errUnreadable = errors.New("the database cannot be read")

// Time limits that an overloaded machine still meets.
const (
	readyLimit    = time.Minute     // maximum time until a server takes writes
	stopLimit     = 2 * time.Minute // maximum time until the running calls have ended
	leftoverLimit = time.Minute     // maximum time until the server has noticed that the workers have ended
)

// run runs the workers and the faults on a cluster, and judges the run.
func (l *leg) run(ctx context.Context, servers *cluster.Cluster) (*report.Leg, error) {
	l.servers = servers
	if err := ledger.Install(ctx, servers.DSN()); err != nil {
		return nil, fmt.Errorf("install: %w", err)
	}
	beside, err := l.openBeside()
	if err != nil {
		return nil, err
	}
	if beside != nil {
		defer beside.Close()
	}
	workers, err := workerset.Start(l.options())
	if err != nil {
		return nil, err
	}
	l.start = workers.Started()
	tortured := l.torture(ctx, workers, beside)
	lost := errors.Is(tortured, fault.ErrNotRecovered)
	if !lost { // if only an injection failed, the run can still be judged
		bounded, cancel := context.WithTimeout(ctx, readyLimit)
		err = servers.AwaitReady(bounded)
		cancel()
	}
	if beside != nil && err == nil && !lost && !l.quiet {
		beside.Calm()
		l.calmDown(ctx, workers)
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	err = errors.Join(err, workers.Stop(bounded), workers.Close())
	if err != nil || lost {
		return nil, errors.Join(tortured, err)
	}
	if beside != nil {
		beside.Calm()
		l.fail(l.finish()) // the checker reports what is still unfinished
	}
	l.fail(tortured)
	return l.judge(ctx)
}

// fail records a failure that does not prevent a check.
func (l *leg) fail(err error) {
	if err != nil {
		l.failures = append(l.failures, err.Error())
	}
}

// counterpart is the system that workers call besides the database.
type counterpart interface {
	KillBy(kill func(slot int)) // sets the function that kills a worker; nil: kill none
	Calm()                      // stops the failures
	Close()
}

// openBeside opens the counterpart, or returns nil if the work has none.
func (l *leg) openBeside() (beside counterpart, err error) {
	switch l.work {
	case fault.OperationWork:
		if l.bank, err = bank.Open(l.seed); err != nil {
			return nil, err
		}
		return l.bank, nil
	case fault.MessageWork:
		if l.broker, err = broker.Open(l.seed); err != nil {
			return nil, err
		}
		if l.quiet {
			l.broker.Calm()
		}
		return l.broker, nil
	}
	return nil, nil
}

func (l *leg) options() workerset.Options {
	pooled := l.servers.BouncerDSN()
	o := workerset.Options{Dir: l.dir, Worker: l.worker()}
	o.Worker.Prepares = pooled != "" && cluster.BouncerPrepares()
	for i := range l.workers {
		dsn, isPooled := l.servers.DSN(), false
		if i%2 == 1 && pooled != "" {
			dsn, isPooled = pooled, true
		}
		o.DSNs, o.Pooled = append(o.DSNs, dsn), append(o.Pooled, isPooled)
	}
	return o
}

// worker returns what the configurations of all workers have in common.
func (l *leg) worker() config.Config {
	c := config.Config{Seed: l.seed, Goroutines: l.goroutines, Keys: l.keys, Quiet: l.quiet, Direct: l.direct}
	if l.bank != nil {
		c.Bank = l.bank.Address()
	}
	if l.broker != nil {
		c.Broker = l.broker.Address()
	}
	return c
}

// torture injects faults until the duration of the leg has passed, or until a fault cannot be
// injected.
func (l *leg) torture(ctx context.Context, workers *workerset.Set, beside counterpart) error {
	defer func() { l.until = history.Now() }()
	ctx, cancel := context.WithTimeout(ctx, l.duration)
	defer cancel()
	if l.inject == nil {
		<-ctx.Done()
		return nil
	}
	log := func(e fault.Event) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.faults = append(l.faults, e)
	}
	if beside != nil {
		beside.KillBy(func(slot int) {
			_ = workers.Signal(slot, syscall.SIGKILL)
			log(fault.Event{Kind: fault.BesideKill, At: history.Now(), Worker: slot})
		})
		defer beside.KillBy(nil)
	}
	return l.inject(ctx, workers, log)
}

const (
	calmFor  = 2500 * time.Millisecond // how long nothing is broken before the end
	forLost  = 20 * time.Second        // minimum duration of a leg that loses answers to claims
	losing   = 1500 * time.Millisecond // how long answers to claims are lost
	lostCalm = 12 * time.Second        // how long the workers may take to recover from lost answers
)

// calmDown cuts all connections once more, so that every process loses the session that shows that
// it is alive. In a leg of operations that lasts at least forLost, it then loses answers to claims
// for a while, and lets the workers recover. After that, in every leg, the workers run without
// faults.
func (l *leg) calmDown(ctx context.Context, workers *workerset.Set) {
	for i := range workers.Len() {
		workers.Proxy(i).Cut(pgproxy.Reset)
	}
	l.calm = history.Now()
	if l.work == fault.OperationWork && l.duration >= forLost {
		bounded, cancel := context.WithTimeout(ctx, losing)
		mix := fault.Mix{Only: []fault.Name{fault.LoseTaking}, Pause: 50 * time.Millisecond}
		l.fail(fault.Run(bounded, l.seed, fault.Target{Workers: workers}, mix, func(fault.Event) {}))
		cancel()
		wait(ctx, lostCalm)
	}
	wait(ctx, calmFor)
	l.stop = history.Now()
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

const (
	finishLimit = time.Minute
	finishTimes = 4
	finishMax   = 20 * time.Minute
	finishExit  = time.Minute // how long the worker of finish may take to exit after its time limit
	finishSlot  = 1000        // the slot of the worker of finish
)

// finish runs a worker that finishes what the others have left. One process has to do what several
// have left, so its time limit grows with the duration of the leg. It is killed if it does not exit
// in time.
func (l *leg) finish() error {
	c := l.worker()
	c.Slot, c.DSN, c.File = finishSlot, l.servers.DSN(), filepath.Join(l.dir, "worker-finish.jsonl")
	c.Finish = min(finishLimit+finishTimes*l.duration, finishMax)
	worker, err := workerset.Launch(c)
	if err != nil {
		return err
	}
	late := time.AfterFunc(c.Finish+finishExit, func() { _ = worker.Signal(syscall.SIGKILL) })
	defer late.Stop()
	killed, err := worker.Wait()
	if killed {
		err = errors.New("it did not exit in time")
	}
	if err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	return nil
}

// judge waits until no session and no lock of a worker is left in the server, and checks the run.
func (l *leg) judge(ctx context.Context) (*report.Leg, error) {
	judged := &report.Leg{Name: l.name, Seed: l.seed, Took: history.Now() - l.start, Faults: l.faults, Failures: l.failures}
	conn, err := pgx.Connect(ctx, l.servers.DSN())
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	left, err := ledger.Leftovers(ctx, conn, leftoverLimit)
	var result *rule.Result
	if err == nil {
		result, err = l.check(ctx, conn)
	}
	if _, ok := errors.AsType[*pgconn.PgError](err); ok {
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	judged.Result = *result
	judged.Violations = append(judged.Violations, left...)
	if quiet := l.longestQuiet(); l.inject != nil && quiet > maxQuiet {
		judged.Failures = append(judged.Failures, fmt.Sprintf("there was no fault for %v", quiet.Round(time.Second)))
	}
	return judged, nil
}

func (l *leg) check(ctx context.Context, conn *pgx.Conn) (*rule.Result, error) {
	switch l.work {
	case fault.OperationWork:
		state, err := audit.Take(ctx, conn)
		if err != nil {
			return nil, err
		}
		events, err := history.Read[journal.Event](l.dir)
		return audit.Run(state, l.bank.Books(), events, audit.Options{Seed: l.seed, Start: l.start, Calm: l.calm, Stop: l.stop, Faults: l.faults}), err
	case fault.MessageWork:
		state, err := inquiry.Take(ctx, conn)
		if err != nil {
			return nil, err
		}
		events, err := history.Read[letter.Event](l.dir)
		result := inquiry.Run(state, l.broker.Books(), events, inquiry.Options{Start: l.start, Quiet: l.quiet, Direct: l.direct, Until: l.until})
		for _, said := range l.deadlocks() {
			result.Violations = append(result.Violations, rule.Violation{Rule: rule.NoDeadlock, Detail: said})
		}
		return result, err
	}
	state, err := ledger.Take(ctx, conn)
	if err != nil {
		return nil, err
	}
	events, err := history.Read[history.Event](l.dir)
	if err != nil {
		return nil, err
	}
	options := check.Options{Start: l.start, Undisturbed: len(l.faults) == 0}
	for _, f := range l.faults {
		const moment = 500 * time.Millisecond // the times of executions this close to a jump are not judged
		switch end := f.At + f.For; {
		case f.Loses:
			options.Losses = append(options.Losses, check.Interval{From: f.At, To: end})
		case f.MovesClock:
			options.ClockMoved = append(options.ClockMoved, check.Interval{From: f.At, To: f.At + moment}, check.Interval{From: end - moment, To: end})
		}
	}
	return check.Run(events, state, options)
}

// deadlocks returns the messages of the server about deadlocks. They only add detail: the check
// counts deadlocks without the log.
func (l *leg) deadlocks() []string {
	log, _ := os.ReadFile(l.servers.Primary().Log())
	return deadlock.FindAllString(string(log), -1)
}

var deadlock = regexp.MustCompile(`(?m)^.*ERROR:  deadlock detected\n(?:.*DETAIL:.*\n(?:\t.*\n)*)?(?:.*(?:HINT|CONTEXT):.*\n(?:\t.*\n)*)*`)

// maxQuiet is the longest time that may pass without a fault, even on a slow machine. It allows for
// one fault that takes its maximum time, and then some that find nothing to break. A leg that
// exceeds it has tested too little.
const maxQuiet = 4 * time.Minute

// longestQuiet returns the longest time without a fault.
func (l *leg) longestQuiet() (longest time.Duration) {
	last := l.start
	for _, f := range append(l.faults, fault.Event{At: l.until}) { // roughly in the order of their times
		longest = max(longest, f.At-last)
		last = max(last, f.At)
	}
	return longest
}
