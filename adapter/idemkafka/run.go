package idemkafka

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/inbox"
)

const (
	minRest = 20 * time.Millisecond // after an error
	maxRest = 5 * time.Second

	pollWait     = time.Second // then a commit that has failed is made again
	commitWithin = 5 * time.Second
)

type held = inbox.Buffered[*kgo.Record]

// run is one Run of a Consumer. No rebalance happens between a poll and the commit of what it has brought.
type run struct {
	*Consumer
	client *kgo.Client
	hand   inbox.Buffer[*kgo.Record]

	mu         sync.Mutex
	partitions map[string]*partition

	rest    time.Time // nothing is handled before: there was an error
	trouble time.Duration
}

// Run handles messages until ctx ends. Then it leaves the group. It survives brokers or a database that are away, and
// returns an error only if there can be no client.
func (c *Consumer) Run(ctx context.Context) error {
	r := &run{Consumer: c, partitions: map[string]*partition{}, trouble: minRest}
	r.hand.Ordered = true
	var err error
	if r.client, err = kgo.NewClient(c.options(r)...); err != nil {
		return err
	}
	defer r.client.CloseAllowingRebalance()
	var redriving sync.WaitGroup
	redriving.Go(func() { r.redrive(ctx) })
	defer redriving.Wait()
	for ctx.Err() == nil {
		r.poll(ctx)
		r.round(ctx)
		r.commit(ctx)
		r.client.AllowRebalance()
	}
	r.commit(context.WithoutCancel(ctx))
	return nil
}

func (c *Consumer) options(r *run) []kgo.Opt {
	gone := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { r.giveUp(lost) }
	return append(c.opts[:len(c.opts):len(c.opts)],
		kgo.ConsumerGroup(c.name), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsRevoked(gone), kgo.OnPartitionsLost(gone),
	)
}

// poll takes messages into the hand. It waits for some, unless there are others that are ready, or will be.
func (r *run) poll(ctx context.Context) {
	wait := pollWait
	now := time.Now()
	ready, next := r.hand.Ready(r.hand.All(), now, 1)
	if len(ready) > 0 {
		next = r.rest
	} else if next.Before(r.rest) && !next.IsZero() {
		next = r.rest
	}
	if len(ready) > 0 || !next.IsZero() {
		wait = min(wait, max(next.Sub(now), time.Millisecond))
	}
	polling, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	fetches := r.client.PollRecords(polling, r.config.Batch)
	fetches.EachError(func(topic string, partition int32, err error) {
		if polling.Err() == nil || !errors.Is(err, polling.Err()) {
			r.config.Logger.Warn("idemkafka: cannot fetch", "consumer", r.name, "topic", topic, "partition", partition, "error", err)
		}
	})
	fetches.EachRecord(r.put)
}

// round handles what is ready.
func (r *run) round(ctx context.Context) {
	now := time.Now()
	ready, _ := r.hand.Ready(r.hand.All(), now, r.config.Batch)
	if len(ready) == 0 || now.Before(r.rest) {
		return
	}
	err := r.hand.Round(ctx, ready, r.batch, r.settle)
	if err == nil {
		r.trouble = minRest
		return
	}
	if ctx.Err() == nil {
		r.config.Logger.Warn("idemkafka: cannot handle messages", "consumer", r.name, "error", err)
		r.rest = time.Now().Add(r.trouble)
		r.trouble = min(2*r.trouble, maxRest)
	}
}

func (r *run) batch(ctx context.Context, messages []inbox.Message) ([]inbox.Outcome, error) {
	type name struct{ source, id string }
	records := make(map[name]*kgo.Record, len(messages))
	for _, h := range r.hand.All() {
		key := name{h.Message.Source, h.Message.ID}
		if records[key] == nil { // the first one is handled
			records[key] = h.Delivery
		}
	}
	return inbox.Batch(ctx, r.pool, r.name, messages, func(tx pgx.Tx, m inbox.Message) error {
		return r.handle(tx, m, records[name{m.Source, m.ID}])
	}, r.config.Options...)
}

func (r *run) settle(h *held, outcome inbox.Outcome) {
	if outcome.State == inbox.Dead && !errors.Is(outcome.Err, inbox.ErrDead) {
		r.config.Logger.Error("idemkafka: a message is a dead letter", "consumer", r.name, "topic", h.Delivery.Topic,
			"partition", h.Delivery.Partition, "offset", h.Delivery.Offset, "error", outcome.Err)
	}
}
