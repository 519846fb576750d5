package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/lab/torture/audit"
	"github.com/idem-go/idem/lab/torture/check"
	"github.com/idem-go/idem/lab/torture/cluster"
	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/inquiry"
	"github.com/idem-go/idem/lab/torture/ledger"
	"github.com/idem-go/idem/lab/torture/report"
	"github.com/idem-go/idem/lab/torture/rule"
	"github.com/idem-go/idem/lab/torture/workerset"
)

// leg is a run on one set of servers.
type leg struct {
	*config
	name     string
	dir      string
	duration time.Duration
	stage    func(ctx context.Context) error // starts the servers, runs the leg, and stops them
	// whole, if it is not nil, runs and judges the leg instead of stage.
	whole func(ctx context.Context) (*report.Leg, error)

	direct string                          // DSN of the server
	pooled string                          // DSN of its pooler, or ""
	ready  func(ctx context.Context) error // waits until the server takes writes
	about  about
	beside counterpart // nil if the work has none

	servers *cluster.Cluster // nil with -database

	// inject injects faults until ctx ends, logs them, and heals everything. It may be nil.
	inject func(ctx context.Context, workers fault.Workers, log func(fault.Event)) error
}

// about has the facts that are needed to check a leg again and are not in its histories.
type about struct {
	Name       string
	Seed       uint64
	Start, End time.Duration
	Until      time.Duration // the end of the injection of faults
	Schedules  []fault.Schedule
	Failures   []string // failures of the leg that do not prevent a check

	Work   fault.Work
	Quiet  bool          // no faults at all
	Direct bool          // messages are handled without a broker
	Stop   time.Duration // the end of the calm period
	Calm   time.Duration // the beginning of the calm period, if the work has a counterpart
}

// errUnreadable reports that the server runs but its tables cannot be read.
var errUnreadable = errors.New("the database cannot be read")

const (
	stateFile = "state.jsonl"
	aboutFile = "run.json"
	faultFile = "faults.jsonl"
)

// run runs the workers and the faults, and writes the final state of the database to a file.
func (l *leg) run(ctx context.Context) error {
	if err := ledger.Install(ctx, l.direct); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	if err := l.openBeside(); err != nil {
		return err
	}
	defer l.closeBeside()
	workers, err := workerset.Start(l.setOptions())
	if err != nil {
		return err
	}
	l.about.Name, l.about.Seed, l.about.Start = l.name, l.seed, workers.Started()
	tortured := l.torture(ctx, workers)
	lost := errors.Is(tortured, fault.ErrNotRecovered)
	if !lost { // after a failed injection the rest can still be judged
		bounded, cancel := context.WithTimeout(ctx, readyLimit)
		err = l.ready(bounded)
		cancel()
	}
	if l.beside != nil && err == nil && !lost && !l.about.Quiet {
		l.calm(ctx, workers)
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	err = errors.Join(err, workers.Stop(bounded), workers.Close())
	if l.beside != nil && err == nil && !lost {
		if unfinished := l.finish(ctx); unfinished != nil { // the checker reports what is left
			l.about.Failures = append(l.about.Failures, unfinished.Error())
		}
	}
	l.about.End = history.Now()
	if err != nil || lost {
		return errors.Join(tortured, err)
	}
	if tortured != nil {
		l.about.Failures = append(l.about.Failures, tortured.Error())
	}
	if err := l.takeState(ctx); err != nil {
		if _, ok := errors.AsType[*pgconn.PgError](err); ok {
			return fmt.Errorf("%w: %w", errUnreadable, err)
		}
		return errors.Join(tortured, fmt.Errorf("state: %w", err))
	}
	return l.writeAbout()
}

// Time limits that an overloaded machine still meets.
const (
	readyLimit    = time.Minute     // for a server to take writes
	stopLimit     = 2 * time.Minute // for the running calls to end
	leftoverLimit = time.Minute     // for the server to notice that the workers have ended
)

// torture injects faults until the time is over, all calls are made, or faults cannot be injected.
func (l *leg) torture(ctx context.Context, workers *workerset.Set) error {
	ctx, cancel := context.WithTimeout(ctx, l.duration)
	defer cancel()
	over := make(chan time.Duration, 1)
	go func() {
		select {
		case <-workers.Done():
			cancel()
		case <-ctx.Done():
		}
		over <- history.Now()
	}()
	defer func() { cancel(); l.about.Until = <-over }()
	if l.inject == nil {
		<-ctx.Done()
		return nil
	}
	writer, err := history.Create(filepath.Join(l.dir, faultFile))
	if err != nil {
		return err
	}
	log := func(e fault.Event) { writer.Append(faultLine{Event: e}) }
	if l.beside != nil {
		l.beside.KillBy(l.kills(workers, log))
		defer l.beside.KillBy(nil)
	}
	err = l.inject(ctx, workers, log)
	return errors.Join(err, writer.Close())
}

func (l *leg) setOptions() workerset.Options {
	options := workerset.Options{
		Dir: l.dir, Seed: l.seed, Goroutines: l.goroutines, Keys: l.keys, KeyLife: l.keyLife, Ops: l.ops,
	}
	options.Bank, options.Broker = l.addresses()
	options.Quiet, options.Direct = l.about.Quiet, l.about.Direct
	options.Prepares = l.pooled != "" && cluster.BouncerPrepares()
	for i := range l.workers {
		dsn, pooled := l.direct, false
		if i%2 == 1 && l.pooled != "" {
			dsn, pooled = l.pooled, true
		}
		options.DSNs, options.Pooled = append(options.DSNs, dsn), append(options.Pooled, pooled)
	}
	return options
}

// takeState waits until the workers have left nothing in the server, and writes the state of the
// database.
func (l *leg) takeState(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, l.direct)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	writer, err := history.Create(filepath.Join(l.dir, stateFile))
	if err != nil {
		return err
	}
	left, err := ledger.Leftovers(ctx, conn, leftoverLimit)
	take := ledger.Take
	switch l.about.Work {
	case fault.OperationWork:
		take = audit.Take
	case fault.MessageWork:
		take = inquiry.Take
	}
	for _, f := range left { // a finding has the same format for all kinds of work
		writer.Append(ledger.Row{Finding: &f})
	}
	if err == nil {
		err = take(ctx, conn, writer)
	}
	if l.about.Work == fault.MessageWork && l.servers != nil {
		for _, said := range l.deadlocks() {
			writer.Append(ledger.Row{Finding: &ledger.Finding{Rule: rule.NoDeadlock, Detail: said}})
		}
	}
	return errors.Join(err, writer.Close())
}

// deadlocks returns the messages of the server about deadlocks.
func (l *leg) deadlocks() []string {
	// The log adds detail only. inquiry.Take counts deadlocks without it.
	log, _ := os.ReadFile(l.servers.Primary().Log())
	return deadlock.FindAllString(string(log), -1)
}

var deadlock = regexp.MustCompile(`(?m)^.*ERROR:  deadlock detected\n(?:.*DETAIL:.*\n(?:\t.*\n)*)?(?:.*(?:HINT|CONTEXT):.*\n(?:\t.*\n)*)*`)

func (l *leg) writeAbout() error {
	encoded, err := json.MarshalIndent(l.about, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(l.dir, aboutFile), encoded, 0o644)
}

// judge checks a leg from its files.
func judge(dir string) (*report.Leg, error) {
	encoded, err := os.ReadFile(filepath.Join(dir, aboutFile))
	if err != nil {
		return nil, err
	}
	var a about
	if err := json.Unmarshal(encoded, &a); err != nil {
		return nil, err
	}
	faults, err := readFaults(dir)
	if err != nil {
		return nil, err
	}
	result, err := resultOf(dir, &a, faults)
	if err != nil {
		return nil, err
	}
	judged := &report.Leg{
		Name: a.Name, Seed: a.Seed, Start: a.Start, End: a.End, Faults: faults, Result: result,
		Failures: a.Failures,
	}
	judged.AddSilences(a.Schedules, a.Until)
	return judged, nil
}

// resultOf runs the checker for the work of the leg.
func resultOf(dir string, a *about, faults []fault.Event) (*check.Result, error) {
	switch a.Work {
	case fault.OperationWork:
		return audit.Files(dir, audit.Options{Seed: a.Seed, Start: a.Start, Calm: a.Calm, Stop: a.Stop, Faults: harms(faults)})
	case fault.MessageWork:
		return inquiry.Files(dir, inquiry.Options{Start: a.Start, Quiet: a.Quiet, Direct: a.Direct, Until: a.Until})
	}
	files, err := filepath.Glob(filepath.Join(dir, "worker-*.jsonl"))
	if err != nil {
		return nil, err
	}
	return check.Files(files, filepath.Join(dir, stateFile), check.Options{
		Start: a.Start, Undisturbed: len(faults) == 0, ClockMoved: clockMoved(faults), Losses: losses(faults), Kills: kills(faults),
	})
}

// harms converts faults for package audit.
func harms(faults []fault.Event) (harms []audit.Fault) {
	for _, f := range faults {
		harms = append(harms, audit.Fault{At: f.At, Until: f.At + f.For, Slot: f.Worker})
	}
	return harms
}
