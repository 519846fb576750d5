package messaging

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/torture/broker"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/inquiry"
	"github.com/idem-go/idem/lab/torture/letter"
	"github.com/idem-go/idem/lab/torture/memory"
	"github.com/idem-go/idem/outbox"
)

// Config configures a worker.
type Config struct {
	Slot, Incarnation int
	Pooled            bool
	Broker            string // address of the broker
	Writers           int
	Keys              int
	Calls             int  // number of letters to write; 0: no limit
	Quiet             bool // no faults, and slow transactions
	Direct            bool // handle letters by package direct, without a broker
}

// office is the state of a worker process.
type office struct {
	*Config
	pools   []*pgxpool.Pool
	broker  *broker.Client
	history *history.Writer
	numbers atomic.Uint32 // counts calls
	severed sync.Map      // letters for which an answer was lost
	calm    bool          // handlers fail only if the fate of a letter requires it
}

func newOffice(c *Config, pools []*pgxpool.Pool, writer *history.Writer) *office {
	return &office{Config: c, pools: pools, broker: broker.NewClient(c.Broker, c.Slot), history: writer}
}

// next returns an identifier for a call.
func (o *office) next() history.Op { return history.NewOp(o.Slot, o.Incarnation, o.numbers.Add(1)) }

func (o *office) note(e letter.Event) {
	e.At = history.Now()
	o.history.Append(e)
}

const (
	shortestPause = 5 * time.Millisecond // backoff after a failure
	longestPause  = 100 * time.Millisecond
	patience      = 5 * time.Second // timeout of a publication
)

// relay runs the relay until ctx ends.
func (o *office) relay(ctx context.Context) error {
	config := outbox.RelayConfig{MaxAttempts: inquiry.MaxAttempts, MinPause: shortestPause, MaxPause: longestPause, PublishTimeout: patience}
	publisher, err := o.publisher()
	if err == nil {
		err = outbox.NewRelay(o.pools[0], publisher, config).Run(ctx)
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Work writes, relays and handles letters until stop ends.
func Work(stop context.Context, c Config, pools []*pgxpool.Pool, writer *history.Writer) error {
	o := newOffice(&c, pools, writer)
	working, cancel := context.WithCancel(stop)
	relayed := make(chan error, 1)
	go func() { relayed <- o.relay(working) }()
	var readers, writers sync.WaitGroup
	if c.Quiet {
		readers.Go(func() { o.probe(working) })
	} else if !c.Direct {
		for _, consumer := range letter.Consumers() {
			readers.Go(func() { (&reader{o, consumer}).read(working) })
		}
	}
	if c.Quiet {
		c.Writers = 1
	}
	for range c.Writers {
		writers.Go(func() {
			if c.Quiet && c.Slot == 0 {
				o.begin()
			}
			for made := 0; stop.Err() == nil && (c.Calls == 0 || made < c.Calls/c.Writers); {
				if c.Quiet {
					made += o.takeTime()
				} else {
					made += o.write()
				}
			}
		})
	}
	writers.Wait()
	cancel()
	readers.Wait()
	err := <-relayed
	o.exit()
	return err
}

func (o *office) exit() {
	o.note(letter.Event{Kind: letter.KindExit, Op: history.NewOp(o.Slot, o.Incarnation, 0), Bytes: memory.Most()})
}
