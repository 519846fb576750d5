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
	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/report"
	"github.com/idem-go/idem/lab/torture/rule"
)

// fleetKeys is the number of keys that the moving tenant has before the run.
const fleetKeys = 1000

// player performs a scene. The clients of the fleet must be served before and after it.
type player interface {
	Perform(ctx context.Context, of scene.Scene) (books scene.Books, note string, err error)
}

// fleetLeg returns the leg with many clusters, which runs by its name alone. Its duration excludes the
// minute that it takes to start the clusters. Clients and books are those of example/fleet.
func (c *flags) fleetLeg(duration time.Duration) *leg {
	l := &leg{flags: c, name: string(fault.Fleet), dir: filepath.Join(c.dir, string(fault.Fleet)), duration: duration}
	l.perform = func(ctx context.Context) (*report.Leg, error) {
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

// play performs a move of a tenant first, then all scenes in a random order that follows from the
// seed, again and again, until the time is over. An error in the books ends the leg, because it
// would be found again after every later scene.
func (l *leg) play(ctx context.Context, fleet player) *report.Leg {
	judged := &report.Leg{Name: l.name, Seed: l.seed}
	begun := history.Now()
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
		judged.Calls += books.Attempts
		judged.Keys += books.Orders
		switch {
		case errors.Is(err, scene.ErrBroken):
			detail := fmt.Sprintf("%s: %d lost, %d doubled: %v", chosen.Name, books.Lost, books.Doubled, err)
			judged.Violations = append(judged.Violations, rule.Violation{Rule: rule.Tenant, Detail: detail})
		case err != nil:
			judged.Failures = append(judged.Failures, fmt.Sprintf("%s: %v", chosen.Name, err))
		}
		judged.Took = history.Now() - begun
		ended = err != nil || ctx.Err() != nil || judged.Took > l.duration
	}
	return judged
}

// impossible returns nil, or why this machine cannot run the leg.
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
