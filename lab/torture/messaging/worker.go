// Package messaging is the program of a worker process in a run of messages. It adds letters to the
// outbox together with other rows, relays them to the broker, and handles the letters that the
// broker delivers. It has no knowledge of the faults and judges nothing: it logs what it did and
// which answers it got.
package messaging

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/torture/broker"
	"github.com/idem-go/idem/lab/torture/config"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/inquiry"
	"github.com/idem-go/idem/lab/torture/letter"
	"github.com/idem-go/idem/lab/torture/unreliable"
	"github.com/idem-go/idem/outbox"
)

// office is the state of a worker process.
type office struct {
	*config.Config
	pools   []*pgxpool.Pool
	broker  *unreliable.Client
	history *history.Writer
	numbers atomic.Uint32 // counts calls
	severed sync.Map      // letters for which an answer was lost
	calm    bool          // handlers fail only if the fate of a letter requires it
}

// next returns an identifier for a call.
func (o *office) next() history.Op { return o.Op(o.numbers.Add(1)) }

func (o *office) note(e letter.Event) {
	e.At = history.Now()
	o.history.Append(e)
}

const (
	shortestPause = 5 * time.Millisecond // backoff after a failure
	longestPause  = 100 * time.Millisecond
	patience      = 5 * time.Second // timeout of a publication
)

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

// Work writes, relays and handles letters until stop ends. If c.Finish is set, it only finishes
// what other workers left.
func Work(stop context.Context, c *config.Config, pools []*pgxpool.Pool, writer *history.Writer) error {
	o := &office{Config: c, pools: pools, broker: unreliable.NewClient(c.Broker, c.Slot), history: writer}
	if c.Finish > 0 {
		o.calm = true
		ctx, cancel := context.WithTimeout(context.Background(), c.Finish)
		defer cancel()
		// Otherwise the relay would wait until the leases of the workers have expired.
		if _, err := pools[0].Exec(ctx, "DELETE FROM idem.leases"); err != nil {
			return err
		}
		return o.serve(ctx, func() error { return o.awaitEnd(ctx) })
	}
	return o.serve(stop, func() error { o.writeAll(stop); return nil })
}

// serve relays and handles letters while it calls work.
func (o *office) serve(ctx context.Context, work func() error) error {
	working, cancel := context.WithCancel(ctx)
	relayed := make(chan error, 1)
	go func() { relayed <- o.relay(working) }()
	var readers sync.WaitGroup
	if o.Quiet && !o.calm {
		readers.Go(func() { o.probe(working) })
	} else if !o.Direct {
		for _, consumer := range letter.Consumers() {
			readers.Go(func() { (&reader{o, consumer}).read(working) })
		}
	}
	err := work()
	cancel()
	readers.Wait()
	return errors.Join(err, <-relayed)
}

func (o *office) writeAll(stop context.Context) {
	var writers sync.WaitGroup
	count, write := max(o.Goroutines/4, 1), o.write
	if o.Quiet {
		count, write = 1, o.takeTime
	}
	for range count {
		writers.Go(func() {
			if o.Quiet && o.Slot == 0 {
				o.begin()
			}
			for stop.Err() == nil {
				write()
			}
		})
	}
	writers.Wait()
}

// awaitEnd waits until the outbox is empty and all deliveries are acknowledged, or ctx ends.
func (o *office) awaitEnd(ctx context.Context) error {
	for ctx.Err() == nil {
		before, err := broker.Counters.Send(ctx, o.broker, struct{}{})
		var waiting int
		if err == nil {
			err = o.pools[1].QueryRow(ctx, "SELECT (SELECT count(*) FROM idem.outbox) + (SELECT count(*) FROM idem.delayed)").Scan(&waiting)
		}
		if err == nil && waiting == 0 && before.Pending == 0 {
			after, err := broker.Counters.Send(ctx, o.broker, struct{}{})
			if err == nil && after == before { // nothing was published in between
				return nil
			}
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

// write adds some letters to the outbox in one transaction, which it may roll back.
func (o *office) write() {
	limit := 2 * time.Second
	if rand.IntN(20) == 0 {
		limit = time.Duration(rand.IntN(100)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := o.say(ctx, o.draw(o.Keys)); err != nil {
		time.Sleep(time.Duration(1+rand.IntN(20)) * time.Millisecond)
	}
	time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
}

// draw returns random letters, sorted by key. The transaction locks the rows of its keys, and
// sorting avoids deadlocks.
func (o *office) draw(keys int) []letter.Letter {
	n := 1 + rand.IntN(4)
	if rand.IntN(40) == 0 {
		n = 100
	}
	var letters []letter.Letter
	for range n {
		l := letter.Letter{ID: letter.NewID(), Topic: letter.Orders, N: rand.IntN(1000), Fate: o.fate()}
		if rand.IntN(5) > 0 {
			l.Key = fmt.Sprintf("key %d", rand.IntN(2*keys))
		} else if rand.IntN(5) == 0 {
			l.Delay = rand.N(2 * time.Second)
		}
		letters = append(letters, l)
	}
	slices.SortStableFunc(letters, func(a, b letter.Letter) int { return strings.Compare(a.Key, b.Key) })
	return letters
}

func (o *office) fate() letter.Fate { return o.fit(fate()) }

// fit replaces a fate that needs a broker if there is none.
func (o *office) fit(f letter.Fate) letter.Fate {
	switch {
	case !o.Direct:
	case f == letter.Unwanted, f == letter.Unnamed:
		return letter.Poison
	case f == letter.Stubborn:
		return letter.Flaky
	}
	return f
}

func fate() letter.Fate {
	switch n := rand.IntN(1000); {
	case n < 10:
		return letter.Unwanted
	case n < 30:
		return letter.Stubborn
	case n < 40:
		return letter.Poison
	case n < 45:
		return letter.BrokenSQL
	case n < 50:
		return letter.BrokenCommit
	case n < 55:
		return letter.Swallows
	case n < 75:
		return letter.Flaky
	case n < 78:
		return letter.Passing
	case n < 82:
		return letter.Severed
	}
	return letter.Plain
}

// say adds letters in one transaction and commits it, possibly late, or rolls it back.
func (o *office) say(ctx context.Context, letters []letter.Letter) error {
	tx, err := o.pools[rand.IntN(len(o.pools))].Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.Background())
	if err := putNext(ctx, tx, letters); err != nil {
		return err
	}
	switch n := rand.IntN(100); {
	case n < 8:
		return nil
	case n < 16: // commit after later transactions
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
	}
	return tx.Commit(ctx)
}

// putNext adds letters with the next sequence numbers of their keys.
func putNext(ctx context.Context, tx pgx.Tx, letters []letter.Letter) error {
	for i := range letters {
		if err := number(ctx, tx, &letters[i]); err != nil {
			return err
		}
	}
	return put(ctx, tx, letters...)
}

// number assigns the next sequence number of its key to the letter. The row of the key stays locked
// until the transaction ends.
func number(ctx context.Context, tx pgx.Tx, l *letter.Letter) error {
	if l.Key == "" {
		return nil
	}
	const next = `INSERT INTO torture.voices AS v VALUES ($1::text, $2::text, 1)
		ON CONFLICT (topic, key) DO UPDATE SET n = v.n + 1 RETURNING n`
	return tx.QueryRow(ctx, next, l.Topic, l.Key).Scan(&l.N)
}

// put adds letters to the outbox, and a row for each letter to torture.said.
func put(ctx context.Context, tx pgx.Tx, letters ...letter.Letter) error {
	var messages []outbox.Message
	for _, l := range letters {
		if _, err := tx.Exec(ctx, "INSERT INTO torture.said VALUES ($1::text, $2::text)", l.ID, string(l.Encode())); err != nil {
			return err
		}
		m := outbox.Message{
			ID: l.ID, Topic: l.Topic, Key: l.Key, Type: "letter", Payload: l.Encode(), Headers: map[string]string{"cause": l.Cause},
		}
		if l.Delay > 0 {
			m.NotBefore = time.Now().Add(l.Delay)
		}
		messages = append(messages, m)
	}
	return outbox.Add(ctx, tx, messages...)
}
