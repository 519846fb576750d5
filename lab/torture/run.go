package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/torture/check"
	"github.com/idem-go/idem/lab/torture/cluster"
	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/report"
	"github.com/idem-go/idem/lab/torture/rule"
)

// run is the command "run".
func run(ctx context.Context, args []string) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	if c.database == "" {
		if _, err := optional.Find("postgres"); err != nil {
			return err
		}
	}
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "torture-"); err != nil {
			return err
		}
	}
	fmt.Printf("seed %d, files in %s\n", c.seed, c.dir)
	if _, err := optional.Find("pgbouncer"); err != nil && c.database == "" {
		fmt.Printf("workers connect without PgBouncer: %v\n", err)
	}
	legs, err := c.legs()
	if err != nil {
		return err
	}
	total, err := runAll(ctx, legs, c.together)
	if err != nil {
		return err
	}
	report.PrintTotal(os.Stdout, total)
	err = total.Write(filepath.Join(c.dir, report.VerdictFile))
	switch {
	case err != nil:
		return err
	case total.Err() != nil:
		fmt.Printf("\nthe files of the run are in %s; `torture check DIR` checks one of its folders again\n", c.dir)
		return total.Err()
	case c.keep:
		return nil
	}
	return os.RemoveAll(c.dir)
}

// runAll runs the legs, the given number at a time. A leg that fails does not affect the others.
// The error is that of ctx.
func runAll(ctx context.Context, legs []*leg, together int) (*report.Total, error) {
	total := new(report.Total)
	var mu sync.Mutex // guards total and the output
	var tasks []func() error
	for _, l := range legs {
		tasks = append(tasks, func() error {
			if ctx.Err() != nil {
				return nil
			}
			judged, err := l.runAndJudge(ctx)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				judged = &report.Leg{Name: l.name, Seed: l.seed, Failures: []string{err.Error()}}
			}
			mu.Lock()
			defer mu.Unlock()
			report.Print(os.Stdout, judged)
			total.Add(judged)
			return nil
		})
	}
	_ = inParallel(together, tasks)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return total, nil
}

// again is the command "check".
func again(args []string) error {
	if len(args) != 1 {
		return errors.New("check wants the folder of one leg")
	}
	judged, err := judge(args[0])
	if err != nil {
		return err
	}
	report.Print(os.Stdout, judged)
	total := new(report.Total)
	total.Add(judged)
	return total.Err()
}

// runAndJudge runs the leg, usually on servers of its own, and checks it from its files.
func (l *leg) runAndJudge(ctx context.Context) (*report.Leg, error) {
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return nil, err
	}
	if l.whole != nil {
		return l.whole(ctx)
	}
	err := within(2*l.duration+stageLimit, func() error { return l.stage(ctx) })
	// There is no state left to check.
	if errors.Is(err, fault.ErrNotRecovered) || errors.Is(err, errUnreadable) {
		lost := check.Violation{Rule: rule.Recovers, Detail: err.Error()}
		return &report.Leg{Name: l.name, Seed: l.seed, Result: &check.Result{Violations: []check.Violation{lost}}}, nil
	}
	if err != nil {
		return nil, err
	}
	return judge(l.dir)
}

// stageLimit is the additional time for a leg on the slowest machine. After it the run continues
// without the leg.
const stageLimit = 20 * time.Minute

// errEndless is the error of a leg that did not end in time. Its goroutine is abandoned.
var errEndless = errors.New("it did not end, and was given up")

func within(limit time.Duration, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		return fmt.Errorf("after %v: %w", limit, errEndless)
	}
}

// mainLeg returns the longest leg, with all faults that a single cluster survives.
func (c *config) mainLeg(duration time.Duration) *leg {
	l := &leg{config: c, name: "main", dir: filepath.Join(c.dir, "main"), duration: duration}
	l.stage = func(ctx context.Context) error {
		if c.database != "" {
			l.direct, l.ready = c.database, func(context.Context) error { return nil }
			return l.run(ctx)
		}
		servers, err := cluster.Start(ctx, cluster.Options{Bouncer: hasBouncer(), Settings: c.settings})
		if err != nil {
			return fmt.Errorf("servers: %w", err)
		}
		if mix, any := c.mix(); any {
			schedule, err := mix.Schedule(true)
			if err != nil {
				return errors.Join(err, servers.Close())
			}
			l.about.Schedules = []fault.Schedule{schedule}
			l.inject = func(ctx context.Context, workers fault.Workers, log func(fault.Event)) error {
				return fault.Run(ctx, c.seed, fault.Target{Cluster: servers, Workers: workers}, mix, log)
			}
		}
		return errors.Join(l.on(ctx, servers), servers.Close())
	}
	return l
}

// scenario returns the leg of a scenario of package fault. Faults of workers and connections, and
// those of operations or messages, are injected at the same time.
func (c *config) scenario(of fault.Leg, duration time.Duration) *leg {
	l := &leg{config: c, name: string(of.Name), dir: filepath.Join(c.dir, string(of.Name)), duration: duration}
	l.about.Work, l.about.Quiet, l.about.Direct = of.Work, of.Quiet, of.Direct
	l.stage = func(ctx context.Context) error {
		settings := c.settings
		// Only the log of the server shows which transactions deadlocked.
		if of.Work == fault.MessageWork {
			settings = append([]string{"log_min_messages=error"}, settings...)
		}
		scene, err := of.Start(ctx, fault.LegOptions{Bouncer: hasBouncer(), Settings: settings, Duration: duration})
		if err != nil {
			return err
		}
		if of.Quiet {
			return errors.Join(l.on(ctx, scene.Cluster), scene.Close())
		}
		besides := fault.Mix{Only: []fault.Name{fault.Worker, fault.Connection}, Pause: time.Second}
		switch of.Work {
		case fault.OperationWork:
			besides.Only, besides.Pause = append(besides.Only, fault.Resumption), 400*time.Millisecond
		case fault.MessageWork:
			besides.Only, besides.Pause = append(besides.Only, fault.Delivery), 400*time.Millisecond
		}
		others, err := besides.Schedule(false)
		if err != nil {
			return errors.Join(err, scene.Close())
		}
		l.about.Schedules = []fault.Schedule{scene.Schedule(), others}
		l.inject = func(ctx context.Context, workers fault.Workers, log func(fault.Event)) error {
			return both(ctx, func(ctx context.Context) error {
				return scene.Run(ctx, c.seed, workers, log)
			}, func(ctx context.Context) error {
				return fault.Run(ctx, c.seed, fault.Target{Workers: workers}, besides, log)
			})
		}
		return errors.Join(l.on(ctx, scene.Cluster), scene.Close())
	}
	return l
}

// both runs two functions at the same time until ctx ends or one of them fails.
func both(ctx context.Context, first, second func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		err := second(ctx)
		if err != nil {
			cancel()
		}
		ended <- err
	}()
	err := first(ctx)
	if err != nil {
		cancel()
	}
	return errors.Join(err, <-ended)
}

// on runs the leg on a cluster.
func (l *leg) on(ctx context.Context, servers *cluster.Cluster) error {
	l.direct, l.pooled, l.ready, l.servers = servers.DSN(), servers.BouncerDSN(), servers.AwaitReady, servers
	return l.run(ctx)
}

func hasBouncer() bool {
	_, err := optional.Find("pgbouncer")
	return err == nil
}
