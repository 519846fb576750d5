package idemnats

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/inbox"
)

const (
	fetchWait = 500 * time.Millisecond // a stop waits for it

	minRest = 20 * time.Millisecond // after an error
	maxRest = 5 * time.Second
)

// run is one Run of a Consumer: one goroutine fetches, one keeps the broker from delivering again what is in hand, and the
// one of Run handles.
type run struct {
	*Consumer
	ackWait      time.Duration
	hand         inbox.Buffer[delivery]
	changed      chan struct{}   // something came into the hand, or left it
	predecessors predecessors    // in order
	trouble      time.Duration   // how long to rest after the next error
	handled      []jetstream.Msg // to be acknowledged
}

type delivery struct {
	msg  jetstream.Msg
	sure *atomic.Bool // see predecessors
}

type held = inbox.Buffered[delivery]

func newRun(c *Consumer) *run {
	config := c.source.CachedInfo().Config
	r := &run{Consumer: c, ackWait: config.AckWait, changed: make(chan struct{}, 1), trouble: minRest}
	r.hand.Ordered = c.config.Ordered
	for _, wait := range config.BackOff {
		r.ackWait = min(r.ackWait, wait)
	}
	return r
}

func (r *run) work(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var others sync.WaitGroup
	others.Go(func() { cancel(r.fetch(ctx)) })
	others.Go(func() { r.beat(ctx) })
	others.Go(func() { r.redrive(ctx) })
	for ctx.Err() == nil {
		r.round(ctx)
	}
	others.Wait()
	r.giveBack()
	if err := context.Cause(ctx); errors.Is(err, nats.ErrConnectionClosed) {
		return err
	}
	return nil
}

// fetch takes messages into the hand. It ends between two fetches, so that none is lost to the wait for its redelivery.
func (r *run) fetch(ctx context.Context) error {
	opts := []jetstream.FetchOpt{jetstream.FetchMaxWait(fetchWait)}
	if r.config.Group != "" {
		opts = append(opts, jetstream.FetchPriorityGroup(r.config.Group))
	}
	for pause := minRest; ctx.Err() == nil; {
		if r.predecessors.yields(time.Now()) || !r.hasRoom() {
			sleep(ctx, 5*time.Millisecond)
			continue
		}
		batch, err := r.source.Fetch(r.config.Batch, opts...)
		if err == nil {
			for msg := range batch.Messages() {
				r.put(msg)
			}
			err = batch.Error()
		}
		switch {
		case errors.Is(err, nats.ErrConnectionClosed):
			return err
		case err != nil && ctx.Err() == nil:
			r.config.Logger.Warn("idemnats: cannot fetch", "consumer", r.name, "error", err)
			sleep(ctx, pause)
			pause = min(2*pause, maxRest)
		default:
			pause = minRest
		}
	}
	return nil
}

// hasRoom says whether there is less in hand than the next batch takes. Not everything that waits for the predecessors is: what
// it waits for has to be fetched as well.
func (r *run) hasRoom() bool {
	all := r.hand.All()
	if !r.config.Ordered && len(all) >= 4*r.config.Batch { // the consumer pauses, or the database is away
		return false
	}
	ready, _ := r.hand.Ready(all, time.Now(), r.config.Batch)
	return len(ready) < r.config.Batch || r.config.Ordered && len(sure(all)) < len(all)
}

func (r *run) put(msg jetstream.Msg) {
	meta, err := msg.Metadata()
	if err != nil {
		r.config.Logger.Error("idemnats: not from JetStream", "consumer", r.name, "error", err)
		return
	}
	id, key := inbox.Identify(r.config.Logger, "idemnats: ConsumerConfig.ID or Key", func() string { return r.config.ID(msg) }, func() string { return r.config.Key(msg) })
	sure := &atomic.Bool{}
	sure.Store(!r.config.Ordered)
	r.hand.Put(&held{Seq: meta.Sequence.Stream, Delivery: delivery{msg, sure}, Message: inbox.Message{
		Source: meta.Stream, ID: id, Key: key, Type: decode(msg.Headers(), HeaderType),
		Headers: ownHeaders(msg.Headers()), Payload: msg.Data(), Deliveries: int(meta.NumDelivered),
	}})
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// beat tells the broker of what is in hand that it is being worked on.
func (r *run) beat(ctx context.Context) {
	for ctx.Err() == nil {
		sleep(ctx, r.ackWait/3)
		for _, h := range r.hand.All() {
			_ = h.Delivery.msg.InProgress() // one that is not told is delivered again
		}
	}
}

// giveBack lets others have at once what is in hand.
func (r *run) giveBack() {
	for _, h := range r.hand.All() {
		_ = h.Delivery.msg.Nak() // or after AckWait
	}
	r.hand.Drop(func(*held) bool { return true })
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
