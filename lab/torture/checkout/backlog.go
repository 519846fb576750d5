package checkout

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// most is how many operations may run before callers begin no more. With a longer queue an operation waits for its turn, and not for a fault
// to be noticed.
const most = 100

// backlog knows whether the workers keep up.
type backlog struct {
	full atomic.Bool
}

func (b *backlog) tooMuch() bool { return b.full.Load() }

// watch looks at what is under way until ctx ends. While the database does not answer, what was seen last is true.
func (b *backlog) watch(ctx context.Context, pool *pgxpool.Pool) {
	const look = "SELECT count(*) FROM (SELECT FROM idem.operations WHERE state = 'running' AND kind <> 'child' LIMIT $1) AS o"
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		var running int
		if err := pool.QueryRow(bounded, look, most).Scan(&running); err == nil {
			b.full.Store(running >= most)
		}
		cancel()
		time.Sleep(200 * time.Millisecond)
	}
}
