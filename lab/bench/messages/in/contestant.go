// Package in contains the compared ways to consume messages from a broker that delivers some
// messages twice. The effect of a message is one row in Postgres. Each way is in its own file, with
// a note on its guarantees and its configuration.
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

// Source is the broker, as a consumer sees it.
type Source interface {
	// Fetch waits for at least one delivery and returns up to max deliveries. It returns io.EOF
	// when no more deliveries will come.
	Fetch(ctx context.Context, max int) ([]broker.Delivery, error)
	// Settle acknowledges the deliveries with the tags in acked. It rejects the deliveries with the
	// tags in rejected, and their messages are delivered again.
	Settle(ctx context.Context, acked, rejected []int64) error
}

// Place is the environment of a contestant: one process with a database and a broker.
type Place struct {
	Pool    *pgxpool.Pool
	Source  Source
	Workers int // number of deliveries or batches handled at the same time
	Batch   int // maximum number of deliveries in a batch
}

// Contestant is one of the compared ways to consume messages.
type Contestant struct {
	Name    string
	Repeats bool // may give a message more than one effect
	Prepare func(ctx context.Context, dsn string) error
	// Consume returns when the source has no more messages and all effects are committed.
	Consume func(ctx context.Context, place Place) error
}

// All lists the contestants in the order of the report. The first contestant is the base with which
// the others are compared.
var All = []Contestant{Plain, PlainBatch, Handle, Batch, Bulk, SelectInsert, Deduplicator}

// Schema creates the table of the effects. The table has no constraint against doubled effects, so
// that the benchmark can count them.
const Schema = `create table effects (n bigint generated always as identity primary key, message uuid not null)`

const (
	insertEffect  = "insert into effects (message) values ($1)"
	insertEffects = "insert into effects (message) select unnest($1::text[])::uuid"
)

// handler handles deliveries and returns the tags of the deliveries to acknowledge.
type handler func(ctx context.Context, place Place, all []broker.Delivery) (done []int64, err error)

// each returns a function for Contestant.Consume that calls handle for each delivery.
func each(handle handler) func(context.Context, Place) error {
	return func(ctx context.Context, place Place) error { return consume(ctx, place, 1, handle) }
}

// inBatches returns a function for Contestant.Consume that calls handle for batches of up to
// place.Batch deliveries.
func inBatches(handle handler) func(context.Context, Place) error {
	return func(ctx context.Context, place Place) error { return consume(ctx, place, place.Batch, handle) }
}

// consume runs workers that fetch and handle deliveries until no more deliveries come. It
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
