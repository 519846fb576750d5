package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

// queue delivers its messages to one consumer at a time, in order, as a partition does. The former
// owner may still be handling a batch.
type queue struct {
	mu       sync.Mutex
	messages []inbox.Message // that are not acknowledged
	owner    int
	settled  int // how often its owners have settled a batch
}

// take makes a consumer the owner and delivers all unacknowledged messages.
func (q *queue) take() (owner int, delivered []inbox.Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.owner++
	for i := range q.messages {
		q.messages[i].Deliveries++
	}
	return q.owner, slices.Clone(q.messages)
}

// settle acknowledges messages. It reports false if the queue has another owner by now.
func (q *queue) settle(owner int, settled map[string]bool) (ours bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if owner != q.owner {
		return false
	}
	q.messages = slices.DeleteFunc(q.messages, func(m inbox.Message) bool { return settled[m.ID] })
	q.settled++
	return true
}

// wait waits until the owners have settled this many more batches, or no message is left.
func (q *queue) wait(batches int) (left bool) {
	for until := -1; ; time.Sleep(time.Millisecond) {
		q.mu.Lock()
		if until < 0 {
			until = q.settled + batches
		}
		left, over := len(q.messages) > 0, q.settled >= until
		q.mu.Unlock()
		if over || !left {
			return left
		}
	}
}

// consume handles the deliveries of one owner until it has lost the queue. A waiting message blocks
// its key, as in the adapters.
func (q *queue) consume(t *testing.T, batch func(context.Context, []inbox.Message) []inbox.Outcome) {
	owner, unacked := q.take()
	due := map[string]time.Time{}
	for len(unacked) > 0 {
		var ready []inbox.Message
		waits, most := map[string]bool{}, 1+rand.N(40)
		for _, m := range unacked {
			if waits[m.Key] = waits[m.Key] || time.Until(due[m.ID]) > 0; !waits[m.Key] && len(ready) < most {
				ready = append(ready, m)
			}
		}
		if len(ready) == 0 { // nothing is due
			time.Sleep(time.Millisecond)
			continue
		}
		ctx, cancel := context.WithCancel(t.Context())
		if rand.N(8) == 0 {
			time.AfterFunc(rand.N(20*time.Millisecond), cancel)
		}
		settled := map[string]bool{}
		for i, o := range batch(ctx, ready) {
			if settled[ready[i].ID] = o.State != inbox.Retry; !settled[ready[i].ID] {
				due[ready[i].ID] = o.RetryAt
			}
		}
		cancel()
		if !q.settle(owner, settled) {
			return
		}
		unacked = slices.DeleteFunc(unacked, func(m inbox.Message) bool { return settled[m.ID] })
	}
}

// The owner of the queue changes all the time, while connections are cut and handlers fail by
// chance.
func TestWithOrder_SurvivesChangesOfTheOwner(t *testing.T) {
	t.Parallel()
	pgtest.Long(t)
	const consumers, keys, count = 3, 6, 500
	p := newProxied(t)
	p.exec(`create table steps (line bigint generated always as identity, key text not null, n int not null)`)
	q := &queue{}
	for n := range count {
		m := message(fmt.Sprintf("%016x", rand.Uint64())) // in no order of their own
		m.Key, m.Payload = fmt.Sprint("key ", rand.N(keys)), fmt.Append(nil, n)
		q.messages = append(q.messages, m)
	}
	opts := []inbox.Option{
		inbox.WithOrder(), inbox.WithMaxAttempts(10_000), inbox.WithBackoff(time.Millisecond, 5*time.Millisecond),
		inbox.WithLimits(20*time.Millisecond, 200*time.Millisecond, time.Second),
	}
	handle := func(tx pgx.Tx, m inbox.Message) error {
		if _, err := tx.Exec(context.Background(), `insert into steps (key, n) values ($1, $2::text::int)`, m.Key, string(m.Payload)); err != nil {
			return err
		}
		if rand.N(8) == 0 {
			return errors.New("this time it does not work")
		}
		return nil
	}
	var group sync.WaitGroup
	for range consumers {
		group.Go(func() {
			pool := pgtest.Open(t, p.proxy.DSN())
			for left := true; left; left = q.wait(rand.N(3)) {
				q.consume(t, func(ctx context.Context, ms []inbox.Message) []inbox.Outcome {
					outcomes, _ := inbox.Batch(ctx, pool, consumer, ms, handle, opts...)
					if len(outcomes) != len(ms) {
						t.Errorf("%d outcomes of %d messages", len(outcomes), len(ms))
					}
					return outcomes
				})
			}
		})
	}
	for q.wait(rand.N(6)) {
		if rand.N(2) == 0 {
			p.proxy.Cut(pgproxy.Reset)
			continue
		}
		// Attempts of killed processes leave such rows.
		p.exec(`update idem.inbox set begun = true where ctid in (
			select ctid from idem.inbox where state = 'failing' and random() < 0.2 for update skip locked)`)
	}
	group.Wait()
	if n := p.count(`select count(*) from steps`); n != count || p.count(`select count(distinct n) from steps`) != count {
		t.Errorf("%d effects of %d messages", n, count)
	}
	if n := p.count(`select count(*) from (select n, lag(n) over (partition by key order by line) as before from steps) s where before > n`); n != 0 {
		t.Errorf("%d messages came behind a later one of their key", n)
	}
}
