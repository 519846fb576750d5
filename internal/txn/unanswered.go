package txn

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A COMMIT whose caller has left goes on by itself, on a connection that the pool no longer counts.

const (
	unansweredLimit = 10 * time.Minute // for how long its connection is kept
	poolWatch       = time.Second      // how often it is looked whether the pool was closed
)

// unanswered counts the connections that wait, by pool.
var unanswered struct {
	mu      sync.Mutex
	perPool map[*pgxpool.Pool]int
}

// Unanswered returns how many COMMITs of a pool go on after their callers have left.
func Unanswered(pool *pgxpool.Pool) int {
	unanswered.mu.Lock()
	defer unanswered.mu.Unlock()
	return unanswered.perPool[pool]
}

// leaveAlone takes the connection out of the pool and waits for the answer in the background: as long as the limit, and as
// the pool is open. As many connections may wait as the pool may have; the socket of one more is closed. That does not
// disturb the COMMIT: no CancelRequest for it has any effect.
func (t *Tx) leaveAlone(answer <-chan error) {
	pool, conn := t.engine.Pool, t.pooled.Hijack()
	t.pooled = nil
	if !countUnanswered(pool, 1) {
		closeSocket(conn)
		return
	}
	go func() {
		defer countUnanswered(pool, -1)
		awaitAnswer(pool, answer)
		closeSocket(conn)
	}()
}

// countUnanswered adds n, unless that would be too many.
func countUnanswered(pool *pgxpool.Pool, n int) bool {
	unanswered.mu.Lock()
	defer unanswered.mu.Unlock()
	if unanswered.perPool == nil {
		unanswered.perPool = map[*pgxpool.Pool]int{}
	}
	count := unanswered.perPool[pool] + n
	if n > 0 && count > int(pool.Config().MaxConns) {
		return false
	}
	unanswered.perPool[pool] = count
	if count == 0 {
		delete(unanswered.perPool, pool)
	}
	return true
}

func awaitAnswer(pool *pgxpool.Pool, answer <-chan error) {
	limit := time.NewTimer(unansweredLimit)
	defer limit.Stop()
	watch := time.NewTicker(poolWatch)
	defer watch.Stop()
	for {
		select {
		case <-answer:
			return
		case <-limit.C:
			return
		case <-watch.C:
			if isClosed(pool) {
				return
			}
		}
	}
}

// isClosed reports whether a pool was closed. It has no connections then, and gives none, at once and without an attempt
// to make one.
func isClosed(pool *pgxpool.Pool) bool {
	if pool.Stat().TotalConns() > 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), poolWatch)
	defer cancel()
	dials := pool.Stat().NewConnsCount()
	conn, err := pool.Acquire(ctx)
	if err == nil {
		conn.Release()
		return false
	}
	return ctx.Err() == nil && !Transient(err) && pool.Stat().NewConnsCount() == dials
}

// closeSocket ends a connection without a word to the server. pgx would send a CancelRequest.
func closeSocket(conn *pgx.Conn) { _ = conn.PgConn().Conn().Close() }
