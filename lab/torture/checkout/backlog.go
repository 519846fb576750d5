package checkout

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// most is the number of running operations at which callers stop beginning new ones. With a longer
// queue an operation waits for its turn for so long that the limits of the audit would not fit.
const most = 100

// backlog reports whether the workers keep up with the callers.
type backlog struct {
	full atomic.Bool
}

func (b *backlog) tooMuch() bool { return b.full.Load() }

// watch counts the running operations until ctx ends. While the database does not answer, the last
// count stays valid.
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
