package txn

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// pendingLimit is how long keepPending keeps the connection of a COMMIT that got no answer.
const pendingLimit = 10 * time.Minute

// pendingCommits are the COMMITs of one pool whose callers have returned without an answer. Their
// connections no longer belong to the pool.
type pendingCommits struct {
	count  int
	over   chan struct{} // closed when no COMMIT is pending
	closed chan struct{} // closed when the pool is closed
}

var (
	pendingMu sync.Mutex
	pendingOf = map[*pgxpool.Pool]*pendingCommits{}
)

// PendingCommits returns the number of COMMITs of a pool whose callers have returned without an
// answer.
func PendingCommits(pool *pgxpool.Pool) int {
	pendingMu.Lock()
	defer pendingMu.Unlock()
	if u := pendingOf[pool]; u != nil {
		return u.count
	}
	return 0
}

// keepPending takes the connection out of the pool and waits for the answer in the background,
// until pendingLimit has passed or the pool is closed. A pool may have as many pending connections
// as MaxConns. If the pool has that many, the socket is closed at once. The same happens if the
// connection has another owner, because it cannot be taken out of the pool of that owner. Closing
// the socket does not disturb the COMMIT.
func (t *Tx) keepPending(answers <-chan answer) {
	pool := t.engine.Pool
	owned := t.sublease() != nil
	conn, release := t.detach()
	if owned {
		CloseSocket(conn)
		go func() { <-answers; release() }()
		return
	}
	u := addPending(pool)
	if u == nil {
		CloseSocket(conn)
		return
	}
	go func() {
		limit := time.NewTimer(pendingLimit)
		defer limit.Stop()
		select {
		case <-answers:
		case <-limit.C:
		case <-u.closed:
		}
		CloseSocket(conn)
		u.leave(pool)
	}()
}

// addPending counts one more pending COMMIT. It returns nil if the pool already has the maximum of
// pending COMMITs.
func addPending(pool *pgxpool.Pool) *pendingCommits {
	pendingMu.Lock()
	defer pendingMu.Unlock()
	u := pendingOf[pool]
	if u == nil {
		u = &pendingCommits{over: make(chan struct{}), closed: make(chan struct{})}
		pendingOf[pool] = u
		go u.watch(pool)
	}
	if u.count >= int(pool.Config().MaxConns) {
		return nil
	}
	u.count++
	return u
}

func (u *pendingCommits) leave(pool *pgxpool.Pool) {
	pendingMu.Lock()
	defer pendingMu.Unlock()
	if u.count--; u.count == 0 {
		delete(pendingOf, pool)
		close(u.over)
	}
}

// watch closes u.closed when the pool is closed. It calls isClosed every second while the pool has
// connections. While the pool is empty it calls isClosed less and less often, because isClosed then
// takes a connection from the pool.
func (u *pendingCommits) watch(pool *pgxpool.Pool) {
	next := time.NewTimer(time.Second)
	defer next.Stop()
	for pause := time.Second; ; {
		select {
		case <-u.over:
			return
		case <-next.C:
		}
		if isClosed(pool) {
			close(u.closed)
			return
		}
		if pause = min(2*pause, time.Minute); pool.Stat().TotalConns() > 0 {
			pause = time.Second
		}
		next.Reset(pause)
	}
}

// isClosed reports whether a pool was closed. A closed pool has no connections, and its Acquire
// fails at once, without dialing.
func isClosed(pool *pgxpool.Pool) bool {
	if pool.Stat().TotalConns() > 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	dials := pool.Stat().NewConnsCount()
	conn, err := pool.Acquire(ctx)
	if err == nil {
		conn.Release()
		return false
	}
	return ctx.Err() == nil && !Transient(err) && pool.Stat().NewConnsCount() == dials
}

// dropConn takes the connection out of the pool and closes its socket.
func (t *Tx) dropConn() {
	conn, release := t.detach()
	CloseSocket(conn)
	release()
}
