package txn

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A COMMIT whose caller has left goes on by itself, on a connection that the pool no longer counts.

// unansweredLimit is for how long the connection of such a COMMIT is kept.
const unansweredLimit = 10 * time.Minute

// unanswered are the COMMITs of one pool that go on by themselves.
type unanswered struct {
	count  int
	over   chan struct{} // closed when none goes on any more
	closed chan struct{} // closed when the pool is
}

var (
	unansweredMu sync.Mutex
	unansweredOf = map[*pgxpool.Pool]*unanswered{}
)

// Unanswered returns how many COMMITs of a pool go on after their callers have left.
func Unanswered(pool *pgxpool.Pool) int {
	unansweredMu.Lock()
	defer unansweredMu.Unlock()
	if u := unansweredOf[pool]; u != nil {
		return u.count
	}
	return 0
}

// leaveAlone takes the connection out of the pool and waits for the answer in the background: as long as the limit, and as
// the pool is open. As many connections may wait as the pool may have; the socket of one more is closed. That does not
// disturb the COMMIT: no CancelRequest for it has any effect. So is that of a connection with another owner, which cannot be taken out
// of the pool.
func (t *Tx) leaveAlone(answers <-chan answer) {
	pool := t.engine.Pool
	owned := t.sublease() != nil
	conn, release := t.detach()
	if owned {
		closeSocket(conn)
		go func() { <-answers; release() }()
		return
	}
	u := enterUnanswered(pool)
	if u == nil {
		closeSocket(conn)
		return
	}
	go func() {
		limit := time.NewTimer(unansweredLimit)
		defer limit.Stop()
		select {
		case <-answers:
		case <-limit.C:
		case <-u.closed:
		}
		closeSocket(conn)
		u.leave(pool)
	}()
}

// enterUnanswered counts one more COMMIT, and returns nil if there are as many as there may be.
func enterUnanswered(pool *pgxpool.Pool) *unanswered {
	unansweredMu.Lock()
	defer unansweredMu.Unlock()
	u := unansweredOf[pool]
	if u == nil {
		u = &unanswered{over: make(chan struct{}), closed: make(chan struct{})}
		unansweredOf[pool] = u
		go u.watch(pool)
	}
	if u.count >= int(pool.Config().MaxConns) {
		return nil
	}
	u.count++
	return u
}

func (u *unanswered) leave(pool *pgxpool.Pool) {
	unansweredMu.Lock()
	defer unansweredMu.Unlock()
	if u.count--; u.count == 0 {
		delete(unansweredOf, pool)
		close(u.over)
	}
}

// watch looks whether the pool was closed, as long as a COMMIT is unanswered: each second while it has connections, and less and
// less often while it has none, because a pool that is only empty is asked for one.
func (u *unanswered) watch(pool *pgxpool.Pool) {
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

// isClosed reports whether a pool was closed. It has no connections then, and gives none, at once and without an attempt
// to make one.
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

// letGo takes the connection out of the pool and closes its socket.
func (t *Tx) letGo() {
	conn, release := t.detach()
	closeSocket(conn)
	release()
}
