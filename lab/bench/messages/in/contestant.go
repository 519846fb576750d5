// Package in contains the compared ways to give a message its effect. The effect is one row in
// Postgres, and the broker delivers some messages twice. Each way is in its own file, with a note
// on its guarantees and its configuration.
package in

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/bench/messages/broker"
)

// Source is the broker.
type Source interface {
	// Fetch returns up to max deliveries. It waits for the first, and returns io.EOF when there
	// will be none.
	Fetch(ctx context.Context, max int) ([]broker.Delivery, error)
	// Settle acknowledges deliveries, and rejects others, which will be delivered again.
	Settle(ctx context.Context, acked, rejected []int64) error
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

// All lists the contestants in the order of the report. The first is the base.
var All = []Contestant{Plain, PlainBatch, Handle, Batch, Bulk, SelectInsert, Deduplicator}

// Schema creates the table of the effects. It has no constraint against doubled effects.
const Schema = `create table effects (n bigint generated always as identity primary key, message uuid not null)`

const (
	insertEffect  = "insert into effects (message) values ($1)"
	insertEffects = "insert into effects (message) select unnest($1::text[])::uuid"
)

// handler handles deliveries and returns those to acknowledge.
type handler func(ctx context.Context, place Place, all []broker.Delivery) (done []int64, err error)

// each returns a Consume that passes the deliveries to handle one by one.
func each(handle handler) func(context.Context, Place) error {
	return func(ctx context.Context, place Place) error { return consume(ctx, place, 1, handle) }
}

// inBatches returns a Consume that passes up to place.Batch deliveries to handle at a time.
func inBatches(handle handler) func(context.Context, Place) error {
	return func(ctx context.Context, place Place) error { return consume(ctx, place, place.Batch, handle) }
}

// consume runs workers that fetch deliveries and handle them until there are no more. It
// acknowledges the deliveries that handle returns and rejects the others.
func consume(ctx context.Context, place Place, max int, handle handler) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for range place.Workers {
		group.Go(func() {
			var err error
			for err == nil {
				err = once(ctx, place, max, handle)
			}
			if !errors.Is(err, io.EOF) {
				cancel(err)
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

func once(ctx context.Context, place Place, max int, handle handler) error {
	all, err := place.Source.Fetch(ctx, max)
	if err != nil {
		return err
	}
	done, err := handle(ctx, place, all)
	if err != nil {
		return err
	}
	var rejected []int64
	if len(done) < len(all) {
		rejected = slices.DeleteFunc(tagsOf(all), func(tag int64) bool { return slices.Contains(done, tag) })
	}
	return place.Source.Settle(ctx, done, rejected)
}

func tagsOf(all []broker.Delivery) []int64 {
	tags := make([]int64, len(all))
	for i, d := range all {
		tags[i] = d.Tag
	}
	return tags
}
