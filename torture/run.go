package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/idem-go/idem/torture/check"
	"github.com/idem-go/idem/torture/cluster"
	"github.com/idem-go/idem/torture/fault"
	"github.com/idem-go/idem/torture/report"
)

// run is the command of that name.
func run(ctx context.Context, args []string) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "torture-"); err != nil {
			return err
		}
	}
	fmt.Printf("seed %d, files in %s\n", c.seed, c.dir)
	legs, err := c.legs()
	if err != nil {
		return err
	}
	kept := true
	var total report.Total
	for _, l := range legs {
		judged, err := l.runAndJudge(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		report.Print(os.Stdout, judged)
		total.Add(judged)
		kept = kept && len(judged.Violations) == 0
	}
	if len(legs) > 1 {
		report.PrintTotal(os.Stdout, &total)
	}
	switch {
	case !kept:
		fmt.Printf("\nthe files of the run are in %s; `torture check DIR` checks one of its folders again\n", c.dir)
		return errNotKept
	case c.keep:
		return nil
	}
	return os.RemoveAll(c.dir)
}

// again is the command check.
func again(args []string) error {
	if len(args) != 1 {
		return errors.New("check wants the folder of one leg")
	}
	judged, err := judge(args[0])
	if err != nil {
		return err
	}
	report.Print(os.Stdout, judged)
	if len(judged.Violations) > 0 {
		return errNotKept
	}
	return nil
}

// runAndJudge runs the leg, on servers of its own as a rule, and checks it from its files.
func (l *leg) runAndJudge(ctx context.Context) (*report.Leg, error) {
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return nil, err
	}
	err := l.stage(ctx)
	if errors.Is(err, fault.ErrNotRecovered) || errors.Is(err, errUnreadable) { // there is nothing left to check
		lost := check.Violation{Rule: check.RuleRecovers, Detail: err.Error()}
		return &report.Leg{Name: l.name, Seed: l.seed, Result: &check.Result{Violations: []check.Violation{lost}}}, nil
	}
	if err != nil {
		return nil, err
	}
	return judge(l.dir)
}

// mainLeg is the longest: everything happens in it that one cluster survives.
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
			l.inject = func(ctx context.Context, workers fault.Workers, log func(fault.Event)) error {
				return fault.Run(ctx, c.seed, fault.Target{Cluster: servers, Workers: workers}, mix, log)
			}
		}
		return errors.Join(l.on(ctx, servers), servers.Close())
	}
	return l
}

// scenario is a leg of package fault, with faults of workers and connections besides.
func (c *config) scenario(of fault.Leg, duration time.Duration) *leg {
	l := &leg{config: c, name: of.Name, dir: filepath.Join(c.dir, of.Name), duration: duration}
	l.stage = func(ctx context.Context) error {
		scene, err := of.Start(ctx, fault.LegOptions{Bouncer: hasBouncer(), Settings: c.settings})
		if err != nil {
			return err
		}
		l.inject = func(ctx context.Context, workers fault.Workers, log func(fault.Event)) error {
			besides := make(chan error, 1)
			go func() {
				mix := fault.Mix{Only: []string{string(fault.Worker), string(fault.Connection)}, Pause: time.Second}
				besides <- fault.Run(ctx, c.seed, fault.Target{Workers: workers}, mix, log)
			}()
			err := scene.Run(ctx, c.seed, workers, log)
			return errors.Join(err, <-besides)
		}
		return errors.Join(l.on(ctx, scene.Cluster), scene.Close())
	}
	return l
}

// on runs the leg on a cluster.
func (l *leg) on(ctx context.Context, servers *cluster.Cluster) error {
	l.direct, l.pooled, l.ready = servers.DSN(), servers.BouncerDSN(), servers.AwaitReady
	return l.run(ctx)
}

func hasBouncer() bool {
	_, err := cluster.FindBouncer()
	return err == nil
}
