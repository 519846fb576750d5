package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/example/fleet"
	"github.com/idem-go/idem/example/fleet/scene"
	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/patroni"
	"github.com/idem-go/idem/lab/torture/report"
	"github.com/idem-go/idem/lab/torture/rule"
)

// fleetKeys is the number of keys that the moving tenant has before the run.
const fleetKeys = 1000

// fleetScene is a fault or a move that happens while clients place orders.
type fleetScene struct {
	name string
	play func(ctx context.Context, c *scene.Crowd) error
}

// fleetLeg returns the leg with many clusters, which runs only if -only names it. Its duration
// excludes the minute that it takes to start the clusters. Package scene of example/fleet makes the
// clients and checks their orders.
func (c *flags) fleetLeg(duration time.Duration) *leg {
	l := &leg{flags: c, name: string(fault.Fleet), dir: filepath.Join(c.dir, string(fault.Fleet)), duration: duration}
	l.perform = func(ctx context.Context) (*report.Leg, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*duration+stageLimit)
		defer cancel()
		f, err := startFleet(ctx)
		if err != nil {
			return nil, err
		}
		defer f.close()
		return l.play(ctx, f.scenes(), f.stage.Perform), nil
	}
	return l
}

// fleetUnderPatroni is a cluster west with two standbys and a cluster east with one, and a service
// on both.
type fleetUnderPatroni struct {
	system     *patroni.System
	nodes      *patroni.Cluster // the nodes of west
	west, east fleet.Cluster
	stage      *scene.Stage
}

func startFleet(ctx context.Context) (f *fleetUnderPatroni, err error) {
	f = &fleetUnderPatroni{}
	defer func(f *fleetUnderPatroni) { // the argument keeps the value: a return with an error sets the result to nil
		if err != nil {
			f.close()
		}
	}(f)
	if f.system, err = patroni.Start(ctx); err != nil {
		return nil, err
	}
	nodes, err := f.system.Clusters(ctx, map[string]int{"west": 3, "east": 2})
	if err != nil {
		return nil, err
	}
	f.nodes = nodes["west"]
	for name, at := range map[string]*fleet.Cluster{"west": &f.west, "east": &f.east} {
		pool, err := pgxpool.New(ctx, nodes[name].DSN())
		if err != nil {
			return nil, err
		}
		*at = fleet.Cluster{Name: name, Pool: pool}
	}
	f.stage, err = scene.Open(ctx, f.west, f.east, fleetKeys)
	return f, err
}

func (f *fleetUnderPatroni) close() {
	if f.stage != nil {
		_ = f.stage.Close() // Perform has already reported the errors of the relays
	}
	for _, c := range []fleet.Cluster{f.west, f.east} {
		if c.Pool != nil {
			c.Pool.Close()
		}
	}
	if f.system != nil {
		f.system.Close()
	}
}

// scenes returns all scenes. The first one moves the tenant.
func (f *fleetUnderPatroni) scenes() []fleetScene {
	return []fleetScene{
		{"a tenant moves under load", func(ctx context.Context, _ *scene.Crowd) error {
			_, err := f.stage.Move(ctx, fleet.MoveConfig{})
			return err
		}},
		{"kill -9 of etcd's leader", func(ctx context.Context, c *scene.Crowd) error {
			revive, err := f.system.KillEtcdLeader(ctx)
			if err != nil {
				return err
			}
			return errors.Join(c.Answered(ctx, 20), revive())
		}},
		{"kill -9 of a cluster's leader", f.killLeader},
		{"kill -9 of a leader in a move", f.killInMove},
	}
}

// killLeader kills the leader of west. If the tenant is in east, killLeader first moves it back:
// without its leader, east would accept no writes, because it has only one standby.
func (f *fleetUnderPatroni) killLeader(ctx context.Context, c *scene.Crowd) error {
	home, err := fleet.Home(ctx, []fleet.Cluster{f.west, f.east}, scene.Mover)
	if err == nil && home.Name != f.west.Name {
		_, err = f.stage.Move(ctx, fleet.MoveConfig{})
	}
	if err != nil {
		return err
	}
	revive, err := f.nodes.KillLeader(ctx)
	if err != nil {
		return err
	}
	return errors.Join(c.Answered(ctx, 20), revive(), f.nodes.Whole(ctx))
}

// killInMove moves the tenant. It kills the leader of west when the move has stopped the writes of
// the tenant (fleet.Fenced). The mover tries again until the tenant has moved.
func (f *fleetUnderPatroni) killInMove(ctx context.Context, _ *scene.Crowd) error {
	var once sync.Once
	revive := func() error { return errors.New("no move has raised its fence") }
	var killing error
	_, err := f.stage.Move(ctx, fleet.MoveConfig{Progress: func(stage fleet.Stage, _ int64) {
		if stage == fleet.Fenced {
			once.Do(func() { revive, killing = f.nodes.KillLeader(ctx) })
		}
	}})
	if err := errors.Join(err, killing); err != nil {
		return err
	}
	return errors.Join(revive(), f.nodes.Whole(ctx))
}

// play performs the first scene. Then it performs all scenes in a random order that follows from
// the seed, again and again, until the duration of the leg has passed. Any error ends the leg: a
// lost order, for example, would be found again after every later scene.
func (l *leg) play(ctx context.Context, scenes []fleetScene, perform func(context.Context, func(context.Context, *scene.Crowd) error) (scene.Books, error)) *report.Leg {
	judged := &report.Leg{Name: l.name, Seed: l.seed}
	begun := history.Now()
	rng := rand.New(rand.NewPCG(l.seed, 0))
	next := scenes[:1]
	for ended := false; !ended; next = next[1:] {
		if len(next) == 0 {
			next = slices.Clone(scenes)
			rng.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
		}
		chosen, at := next[0], history.Now()
		books, err := perform(ctx, chosen.play)
		judged.Faults = append(judged.Faults, fault.Event{Kind: fault.Name(chosen.name), At: at, For: history.Now() - at})
		judged.Calls += books.Orders
		judged.Keys += books.Orders
		switch {
		case errors.Is(err, scene.ErrBroken):
			detail := fmt.Sprintf("%s: %d lost, %d doubled: %v", chosen.name, books.Lost, books.Doubled, err)
			judged.Violations = append(judged.Violations, rule.Violation{Rule: rule.Tenant, Detail: detail})
		case err != nil:
			judged.Failures = append(judged.Failures, fmt.Sprintf("%s: %v", chosen.name, err))
		}
		judged.Took = history.Now() - begun
		ended = err != nil || ctx.Err() != nil || judged.Took > l.duration
	}
	return judged
}

// impossible returns nil, or the reason why this machine cannot run the leg.
func impossible(name fault.Name) error {
	if name == fault.Fleet {
		return patroni.Possible()
	}
	for _, l := range fault.Legs(0) {
		if l.Name == name {
			return l.Possible
		}
	}
	return nil
}
