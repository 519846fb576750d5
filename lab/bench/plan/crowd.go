package plan

import (
	"context"
	"sync"
	"time"

	"github.com/idem-go/idem/lab/bench/arena"
	"github.com/idem-go/idem/lab/bench/measure"
	"github.com/idem-go/idem/lab/bench/result"
)

// held counts the pool's connections that are taken while a first run is at its end, alone and with duplicates.
func (s *Session) held(ctx context.Context, b *bench, p *result.Profile) error {
	const duplicates = 20
	// The connections are there before they are needed: what is to be seen is whether they are taken, not how fast they open.
	if sample := measure.Run(ctx, b.booth.Runner, b.source, duplicates+1, measure.Limit{Ops: 5}); sample.Err != nil {
		return sample.Err
	}
	atRest := int(b.booth.Pool.Stat().AcquiredConns())
	call := b.source.Template
	call.Key = b.source.Take(1)[0]
	var group sync.WaitGroup
	errs := make(chan error, duplicates+1)
	again := call
	call.Hold = func() {
		p.Held.Running = int(b.booth.Pool.Stat().AcquiredConns()) - atRest
		for range duplicates {
			group.Go(func() {
				_, err := b.booth.Runner.Do(ctx, again)
				errs <- err
			})
		}
		p.Held.Waiting = greatest(func() int { return int(b.booth.Pool.Stat().AcquiredConns()) - atRest - p.Held.Running })
	}
	_, err := b.booth.Runner.Do(ctx, call)
	errs <- err
	group.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// greatest watches a figure until it has not grown for a while.
func greatest(figure func() int) int {
	const while = 200 * time.Millisecond
	most := 0
	for deadline := time.Now().Add(while); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if now := figure(); now > most {
			most, deadline = now, time.Now().Add(while)
		}
	}
	return most
}

// races lets 32 calls with the same key start at once, and counts what was executed.
func (s *Session) races(ctx context.Context, b *bench, p *result.Profile) error {
	const races, calls = 10, 32
	if err := arena.Clear(ctx, b.booth.Pool); err != nil {
		return err
	}
	for _, key := range b.source.Take(races) {
		source := b.source.Fork()
		source.Keys = []string{key}
		sample := measure.Run(ctx, b.booth.Runner, source, calls, measure.Limit{Ops: 1})
		if sample.Err != nil {
			return sample.Err
		}
		p.Duplicates.Refused += sample.Refused
	}
	effects, err := arena.Count(ctx, b.booth.Pool)
	p.Duplicates.Races, p.Duplicates.Executed = races, effects.Orders
	return err
}
