package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/idem-go/idem/example/fleet/patroni"
	"github.com/idem-go/idem/example/fleet/scene"
	"github.com/idem-go/idem/lab/torture/check"
	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/report"
	"github.com/idem-go/idem/lab/torture/rule"
)

// fleetAbout is what the leg does, whose duration comes on top of a minute in which the clusters are made.
const fleetAbout = "tenants of clusters under Patroni, synchronous, one of which moves; kill -9 of primaries, of etcd's leader, of instances and of movers. By its name alone: it takes minutes"

// fleetKeys is how many keys the tenant has that moves, besides those of the run.
const fleetKeys = 1000

// player plays a scene between two times at which the clients of a fleet are served.
type player interface {
	Perform(ctx context.Context, of scene.Scene) (books scene.Books, note string, err error)
}

// fleetLeg is the leg on many clusters. Its clients are those of example/fleet, and so are its books.
func (c *config) fleetLeg(duration time.Duration) *leg {
	l := &leg{config: c, name: string(fault.Fleet), dir: filepath.Join(c.dir, string(fault.Fleet)), duration: duration}
	l.whole = func(ctx context.Context) (*report.Leg, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*duration+stageLimit)
		defer cancel()
		stage, err := scene.Start(ctx, fleetKeys)
		if err != nil {
			return nil, err
		}
		defer stage.Close()
		return l.play(ctx, stage), nil
	}
	return l
}

// play begins with a tenant that moves, and plays all scenes in an order that follows from the seed, again and again, until time is up. What
// is not in order in the books ends it, because it stays there.
func (l *leg) play(ctx context.Context, fleet player) *report.Leg {
	judged := &report.Leg{Name: l.name, Seed: l.seed, Start: history.Now(), Result: &check.Result{}}
	rng := rand.New(rand.NewPCG(l.seed, 0))
	next := []scene.Scene{scene.Moves}
	for ended := false; !ended; next = next[1:] {
		if len(next) == 0 {
			next = slices.Clone(scene.All)
			rng.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
		}
		chosen, at := next[0], history.Now()
		books, _, err := fleet.Perform(ctx, chosen)
		judged.Faults = append(judged.Faults, fault.Event{Kind: fault.Name(chosen.Name), At: at, For: history.Now() - at})
		judged.Tally.Operations += books.Attempts
		judged.Keys += books.Orders
		switch {
		case errors.Is(err, scene.ErrBroken):
			detail := fmt.Sprintf("%s: %d lost, %d doubled: %v", chosen.Name, books.Lost, books.Doubled, err)
			judged.Violations = append(judged.Violations, check.Violation{Rule: rule.Tenant, Detail: detail})
		case err != nil:
			judged.Failures = append(judged.Failures, fmt.Sprintf("%s: %v", chosen.Name, err))
		}
		judged.End = history.Now()
		ended = err != nil || ctx.Err() != nil || judged.End-judged.Start > l.duration
	}
	return judged
}

// impossible is nil, or why this machine cannot do a leg.
func impossible(name fault.Name) error {
	if name == fault.Fleet {
		return patroni.Possible()
	}
	for _, l := range fault.Legs() {
		if l.Name == name {
			return l.Possible
		}
	}
	return nil
}
