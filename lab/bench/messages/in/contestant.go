// Package in holds the ways to give a message its effect that the benchmark compares: one row in
// Postgres, for messages of which a broker delivers some twice. Each is in a file of its own, with
// a note of what it promises and how it is set up.
package in

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

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

// Place is where a contestant works: one process, with a database and a broker.
type Place struct {
	Pool    *pgxpool.Pool
	Source  Source
	Workers int // how many deliveries, or batches of them, are handled at once
	Batch   int // how many deliveries a batch has at most
	// Patience is how long an effect may take, for contestants that learn by a timeout that a
	// process is dead. Zero means their default.
	Patience time.Duration
}

// Contestant is one way to do it.
type Contestant struct {
	Name    string
	Repeats bool // it does not promise that each effect is there once
	Prepare func(ctx context.Context, dsn string) error
	// Consume returns when the source has no more, and all effects are committed.
	Consume func(ctx context.Context, place Place) error
}

// All returns the contestants in the order of the report. The first is the base.
func All() []Contestant {
	return []Contestant{
		Plain(), PlainBatch(), Handle(), Batch(), Bulk(), SelectInsert(), Deduplicator(), DeduplicatorKeys(), WatermillSQL(), River(),
	}
}

// Named returns the contestant of a name.
func Named(name string) (Contestant, bool) {
	for _, c := range All() {
		if c.Name == name {
			return c, true
		}
	}
	return Contestant{}, false
}

// Schema is what the effects write to. Nothing in it keeps one from being there twice.
const Schema = `create table effects (n bigint generated always as identity primary key, message uuid not null)`

const (
	insertEffect  = "insert into effects (message) values ($1)"
	insertEffects = "insert into effects (message) select unnest($1::text[])::uuid"
)

// consume lets workers fetch deliveries and handle them, until there are no more. Those that handle
// does not answer for are given back.
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

// quiet is a logger for libraries that would warn of what is only slow.
var quiet = slog.New(slog.DiscardHandler)
