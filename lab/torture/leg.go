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
	stage    func(ctx context.Context) error                // starts what is needed, runs the leg, and takes it down
	whole    func(ctx context.Context) (*report.Leg, error) // does all of that and judges, in the place of stage, where it is not nil

	direct string                          // address of the server
	pooled string                          // address of its pooler, empty if there is none
	ready  func(ctx context.Context) error // returns when the server takes writes
	about  about
	beside counterpart // nil if its work needs none

	servers *cluster.Cluster // nil if a database was given

	// inject does harm until ctx ends, tells of it, and heals everything before it returns. It may be nil.
	inject func(ctx context.Context, workers fault.Workers, log func(fault.Event)) error
}

// about is what has to be known besides the histories to check a leg again.
type about struct {
	Name       string
	Seed       uint64
	Start, End time.Duration
	Until      time.Duration // to which faults were injected
	Schedules  []fault.Schedule
	Failures   []string // what of the leg did not work, although it can be judged

	Work   fault.Work
	Quiet  bool          // nothing is broken at all
	Direct bool          // messages have their effects without a broker
	Stop   time.Duration // until which nothing was broken, and the workers worked
	Calm   time.Duration // from when nothing was broken any more, where the work has a counterpart
}

// errUnreadable says that the server is there, and what should be in it is not.
var errUnreadable = errors.New("the database cannot be read")

const (
	stateFile = "state.jsonl"
	aboutFile = "run.json"
	faultFile = "faults.jsonl"
)

// run lets the workers work and the faults happen, and writes down what is in the database afterwards.
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
	if !lost { // what did not work need not keep the rest from being judged
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
		if unfinished := l.finish(ctx); unfinished != nil { // the checker says what is left
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

// What a machine at its limit still does in time.
const (
	readyLimit    = time.Minute     // for a server to take writes
	stopLimit     = 2 * time.Minute // for the calls under way to end
	leftoverLimit = time.Minute     // for the server to have noticed that the workers are gone
)

// torture returns when time is up, or the workers have made all their calls, or faults cannot be injected.
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

// takeState waits for the server to have nothing left of the workers, and writes down what is in the database.
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
	for _, f := range left { // a finding is the same line in every state
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

// deadlocks returns what the server has said of each.
func (l *leg) deadlocks() []string {
	log, _ := os.ReadFile(l.servers.Primary().Log()) // that there were some is known without it
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

// resultOf is what the checker of the leg's workload says.
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

// harms are the faults as an audit has to know them.
func harms(faults []fault.Event) (harms []audit.Fault) {
	for _, f := range faults {
		harms = append(harms, audit.Fault{At: f.At, Until: f.At + f.For, Slot: f.Worker})
	}
	return harms
}
