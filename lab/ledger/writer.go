package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Writer says messages, a few at a time and side by side.
type Writer struct {
	Pool     *pgxpool.Pool
	Topic    string
	Messages int
	Keys     int
	Poison   int           // one in so many
	Pause    time.Duration // of each of the four that write
	said     atomic.Int64
}

// Said is how many there are so far.
func (w *Writer) Said() int { return int(w.said.Load()) }

// Run says them all.
func (w *Writer) Run(ctx context.Context) error {
	const hands, most = 4, 8
	var all sync.WaitGroup
	failed := make([]error, hands)
	var begun atomic.Int64
	for hand := range hands {
		all.Go(func() {
			for failed[hand] == nil {
				n := 1 + rand.N(most)
				if over := int(begun.Add(int64(n))) - w.Messages; over > 0 {
					n -= over
				}
				if n <= 0 {
					return
				}
				key := fmt.Sprint("key ", rand.N(w.Keys))
				if rand.N(8) == 0 {
					failed[hand] = Unsay(ctx, w.Pool, w.Topic, key, n)
				}
				failed[hand] = errors.Join(failed[hand], Say(ctx, w.Pool, w.Topic, key, n, func() bool { return rand.N(w.Poison) == 0 }))
				w.said.Add(int64(n))
				time.Sleep(w.Pause)
			}
		})
	}
	all.Wait()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}
