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
	"github.com/idem-go/idem/lab/torture/cluster"
	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/report"
	"github.com/idem-go/idem/lab/torture/rule"
)

// run executes the command "torture run".
func run(ctx context.Context, args []string) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	if _, err := optional.Find("postgres"); err != nil {
		return err
	}
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "torture-"); err != nil {
			return err
		}
	}
	fmt.Printf("seed %d, files in %s\n", c.seed, c.dir)
	if _, err := optional.Find("pgbouncer"); err != nil {
		fmt.Printf("workers connect without PgBouncer: %v\n", err)
	}
	legs, err := c.legs()
	if err != nil {
		return err
	}
	verdict := runAll(ctx, legs, c.together)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	fmt.Printf("\ntogether: %d histories accepted by the model, in %d steps\n", verdict.Histories, verdict.Steps)
	if err := errors.Join(verdict.Write(filepath.Join(c.dir, report.VerdictFile)), verdict.Err()); err != nil || c.keep {
		return err
	}
	return os.RemoveAll(c.dir)
}

// runAll runs the legs, the given number at a time. A leg that fails does not affect the others.
func runAll(ctx context.Context, legs []*leg, together int) *report.Verdict {
	verdict := new(report.Verdict)
	var mu sync.Mutex // guards verdict and the output
	var tasks []func() error
	for _, l := range legs {
		tasks = append(tasks, func() error {
			if ctx.Err() != nil {
				return nil
			}
			judged := l.runAndJudge(ctx)
			mu.Lock()
			defer mu.Unlock()
			report.Print(os.Stdout, judged)
			verdict.Add(judged)
			return nil
		})
	}
	_ = inParallel(together, tasks)
	return verdict
}

// stageLimit is the time that a leg may take beyond its duration, on the slowest machine. After
// that, the run continues without the leg, whose goroutine is abandoned.
const stageLimit = 20 * time.Minute

// runAndJudge runs the leg on servers of its own, and checks it.
func (l *leg) runAndJudge(ctx context.Context) *report.Leg {
	begun := time.Now()
	var judged *report.Leg
	done := make(chan error, 1)
	go func() {
		err := os.MkdirAll(l.dir, 0o755)
		if err == nil {
			judged, err = l.perform(ctx)
		}
		done <- err
	}()
	var err error
	select {
	case err = <-done:
	case <-time.After(2*l.duration + stageLimit):
		err = errors.New("it did not end, and was given up")
	}
	if err == nil {
		return judged
	}
	failed := &report.Leg{Name: l.name, Seed: l.seed, Took: time.Since(begun)}
	if errors.Is(err, fault.ErrNotRecovered) || errors.Is(err, errUnreadable) { // there is no state to check
		failed.Violations = []rule.Violation{{Rule: rule.Recovers, Detail: err.Error()}}
	} else {
		failed.Failures = []string{err.Error()}
	}
	return failed
}

// mainLeg returns the longest leg, with all faults that a single cluster survives.
func (c *flags) mainLeg(duration time.Duration) *leg {
	l := &leg{flags: c, name: "main", dir: filepath.Join(c.dir, "main"), duration: duration}
	l.perform = func(ctx context.Context) (*report.Leg, error) {
		servers, err := cluster.Start(ctx, cluster.Options{Bouncer: hasBouncer(), Settings: c.settings})
		if err != nil {
			return nil, fmt.Errorf("servers: %w", err)
		}
		if mix, any := c.mix(); any {
			l.inject = func(ctx context.Context, workers fault.Workers, log func(fault.Event)) error {
				return fault.Run(ctx, c.seed, fault.Target{Cluster: servers, Workers: workers}, mix, log)
			}
		}
		judged, err := l.run(ctx, servers)
		return judged, errors.Join(err, servers.Close())
	}
	return l
}

// scenario returns the leg of a scenario of package fault. While the event of the scenario repeats,
// the leg also injects faults of workers and connections, and those of operations or messages.
func (c *flags) scenario(of fault.Leg, duration time.Duration) *leg {
	l := &leg{flags: c, name: string(of.Name), dir: filepath.Join(c.dir, string(of.Name)), duration: duration}
	l.work, l.quiet, l.direct = of.Work, of.Quiet, of.Direct
	besides := fault.Mix{Only: []fault.Name{fault.Worker, fault.Connection}, Pause: time.Second}
	settings := c.settings
	switch of.Work {
	case fault.OperationWork:
		besides.Only, besides.Pause = append(besides.Only, fault.Resumption), 400*time.Millisecond
	case fault.MessageWork:
		besides.Only, besides.Pause = append(besides.Only, fault.Delivery), 400*time.Millisecond
		// Only the log of the server shows which transactions deadlocked.
		settings = append([]string{"log_min_messages=error"}, settings...)
	}
	l.perform = func(ctx context.Context) (*report.Leg, error) {
		scene, err := of.Start(ctx, hasBouncer(), settings)
		if err != nil {
			return nil, err
		}
		if !of.Quiet {
			l.inject = func(ctx context.Context, workers fault.Workers, log func(fault.Event)) error {
				return both(ctx, func(ctx context.Context) error {
					return scene.Run(ctx, c.seed, workers, log)
				}, func(ctx context.Context) error {
					return fault.Run(ctx, c.seed, fault.Target{Workers: workers}, besides, log)
				})
			}
		}
		judged, err := l.run(ctx, scene.Cluster)
		return judged, errors.Join(err, scene.Close())
	}
	return l
}

// both runs two functions at the same time until ctx ends or one of them fails. It returns the
// errors of both. An errgroup would return only the first.
func both(ctx context.Context, first, second func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	task := func(run func(context.Context) error) func() error {
		return func() error {
			err := run(ctx)
			if err != nil {
				cancel()
			}
			return err
		}
	}
	return inParallel(2, []func() error{task(first), task(second)})
}

func hasBouncer() bool {
	_, err := optional.Find("pgbouncer")
	return err == nil
}
