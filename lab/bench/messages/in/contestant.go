// Package in contains the compared ways to give a message its effect. The effect is one row in
// Postgres, and the broker delivers some messages twice. Each way is in its own file, with a note
// on its guarantees and its configuration.
package in

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/bench/messages/broker"
)

// Source is the broker.
type Source interface {
	// Fetch returns up to max deliveries. It waits for the first, and returns io.EOF when there
	// will be none.
	Fetch(ctx context.Context, max int) ([]broker.Delivery, error)
	Ack(ctx context.Context, tags ...int64) error
	Nack(ctx context.Context, tags ...int64) error
}

// Place is the environment of a contestant: one process with a database and a broker.
type Place struct {
	Pool    *pgxpool.Pool
	Source  Source
	Workers int // number of deliveries or batches handled at the same time
	Batch   int // maximum number of deliveries in a batch
}

// Contestant is one way to consume messages.
type Contestant struct {
	Name    string
	Repeats bool // does not promise exactly one effect
	Prepare func(ctx context.Context, dsn string) error
	// Consume returns when the source has no more messages and all effects are committed.
	Consume func(ctx context.Context, place Place) error
}

// All returns the contestants in the order of the report. The first is the base.
func All() []Contestant {
	return []Contestant{
		Plain(), PlainBatch(), Handle(), Batch(), Bulk(), SelectInsert(), Deduplicator(),
	}
}

// Schema creates the table of the effects. It has no constraint against doubled effects.
const Schema = `create table effects (n bigint generated always as identity primary key, message uuid not null)`

const (
	insertEffect  = "insert into effects (message) values ($1)"
	insertEffects = "insert into effects (message) select unnest($1::text[])::uuid"
)

// consume runs workers that fetch deliveries and handle them until there are no more. It
// acknowledges the deliveries that handle returns and rejects the others.
func consume(ctx context.Context, place Place, max int, handle func(context.Context, []broker.Delivery) (done []int64, err error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for range place.Workers {
		group.Go(func() {
			for {
				err := once(ctx, place.Source, max, handle)
				if errors.Is(err, io.EOF) {
					return
				}
				if err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

func once(ctx context.Context, source Source, max int, handle func(context.Context, []broker.Delivery) ([]int64, error)) error {
	all, err := source.Fetch(ctx, max)
	if err != nil {
		return err
	}
	done, err := handle(ctx, all)
	if err != nil {
		return err
	}
	if err := source.Ack(ctx, done...); err != nil || len(done) == len(all) {
		return err
	}
	left := map[int64]bool{}
	for _, d := range all {
		left[d.Tag] = true
	}
	for _, tag := range done {
		delete(left, tag)
	}
	for tag := range left {
		if err := source.Nack(ctx, tag); err != nil {
			return err
		}
	}
	return nil
}

func tagsOf(all []broker.Delivery) []int64 {
	tags := make([]int64, len(all))
	for i, d := range all {
		tags[i] = d.Tag
	}
	return tags
}
