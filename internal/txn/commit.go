package txn

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/internal/wire"
)

// Commit sends requests and COMMIT: one round trip. If ctx has ended nothing is sent. If it ends later, the answer is still
// waited for, for as long as Limits.Commit; then the connection is left alone with its COMMIT, and the error is an
// *UnknownError. If the answer has begun to arrive by then, and stopped, the connection is closed. The COMMIT is never
// cancelled: to a transaction that waits for a synchronous standby, a CancelRequest means not to wait, and the primary would
// show as committed what no standby has.
//
// After an *UnknownError the requests must not be used again: their answers may still come.
func (t *Tx) Commit(ctx context.Context, requests ...Request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c := &t.commit
	c.sql = t.engine.Options.CommitQuery
	requests = append(append(t.withCommit[:0], requests...), c)
	if sub := t.sublease(); sub != nil && sub.Chained() {
		requests = c.chain(requests)
	}
	if ctx.Done() == nil {
		return t.committed(c, askUncancelled(t.conn, requests))
	}
	w := wireOf(t.conn)
	if w == nil || !isQuiet(t.conn.PgConn()) {
		return t.commitBeside(ctx, t.engine.Limits.Commit, func() error { return askUncancelled(t.conn, requests) })
	}
	return t.commitHere(ctx, w, requests)
}

// slowWrite is less than what pgx takes for a write that may never end: from then on it reads in the background.
const slowWrite = 5 * time.Millisecond

// commitHere sends requests and waits for the answer on the goroutine of the caller: no other thread has to be woken, which costs
// more than all else that a call does by itself (make bench/profile). The answer is not touched before it arrives, so that
// a caller that waits in vain can leave it to another goroutine. One that has begun to arrive, and stops, cannot be left: its
// connection is closed.
func (t *Tx) commitHere(ctx context.Context, w *wire.Wire, requests []Request) error {
	pg := t.conn.PgConn()
	g := newGrace(ctx, t.engine.Limits.Commit, pg.Conn())
	defer g.end() // also if a handler panics
	begun := time.Now()
	u := sendUncancelled(t.conn, requests)
	slow := time.Since(begun) > slowWrite
	switch waitForAnswer(pg, w, g, slow) {
	case outOfSight:
		return t.commitBeside(ctx, g.left(), u.read)
	case missing:
		answers := make(chan answer, 1)
		go answered(answers, u.read)
		t.leaveAlone(answers)
		return t.unanswered(ctx)
	case atHand:
	}
	return t.readHere(ctx, g, u)
}

// readHere reads the answer. One that stops halfway ends with the grace.
func (t *Tx) readHere(ctx context.Context, g *grace, u uncancelled) error {
	err := u.read()
	ended := g.end()
	if ended && t.conn.IsClosed() { // pgx is closing it, which takes it some seconds, and the pool is to have its place back
		t.letGo()
	}
	if ended && err != nil && !refused(err) {
		return t.unanswered(ctx)
	}
	return t.committed(&t.commit, err)
}

// sight is what the socket shows of the answer to a COMMIT.
type sight int

const (
	atHand     sight = iota // it begins to arrive; or none will, and there is an error to read
	outOfSight              // pgx may be reading it in the background, since the write was slow; or TLS may have read the end of the connection ahead
	missing                 // nothing of it has arrived, and the grace is over
)

// waitForAnswer waits until the answer begins to arrive, or the grace is over. Unless the answer is at hand, the grace is ended
// when it returns: the socket is ready for the next reader.
func waitForAnswer(pg *pgconn.PgConn, w *wire.Wire, g *grace, slow bool) sight {
	if slow {
		if g.end() && pg.IsClosed() { // in the middle of the write
			return atHand
		}
		return outOfSight
	}
	if nothingSent := !pg.IsBusy(); nothingSent {
		return atHand
	}
	if w.ReadAhead {
		g.bound(readAhead)
	}
	switch {
	case w.Arrives():
		g.unbound()
		return atHand
	case g.end():
		return missing
	case w.ReadAhead:
		return outOfSight
	}
	return atHand // the socket was closed
}

// readAhead is how long a COMMIT over TLS waits for its socket alone. TLS may have taken the end of the connection from the socket together
// with the answer before: then nothing arrives there, and only a read through TLS tells.
const readAhead = 200 * time.Millisecond

// isQuiet reports whether pgx neither reads in the background, as it may since an earlier write, nor has read ahead. SyncConn
// only looks if its context has ended.
func isQuiet(pg *pgconn.PgConn) bool {
	return !pg.IsBusy() && !pg.IsClosed() && pg.SyncConn(endedContext) == nil
}

var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// commitBeside has the round trip, or what is left of it, made on another goroutine.
func (t *Tx) commitBeside(ctx context.Context, patience time.Duration, trip func() error) error {
	answers := make(chan answer, 1)
	go answered(answers, trip)
	select {
	case a := <-answers:
		return t.committed(&t.commit, a.get())
	case <-ctx.Done():
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case a := <-answers:
		return t.committed(&t.commit, a.get())
	case <-timer.C:
	}
	t.leaveAlone(answers)
	return t.unanswered(ctx)
}

func (t *Tx) unanswered(ctx context.Context) error {
	return &UnknownError{Err: fmt.Errorf("no answer came within %v after the end of the context: %w", t.engine.Limits.Commit, context.Cause(ctx))}
}

// committed tells what the answer to COMMIT means. An ordinary error of the server means that nothing was committed. Any
// other says nothing about the COMMIT: the server reports a session that it ends, or even its own crash, after the commit has
// become durable; and some servers say by an ordinary error that they do not know. pgconn.SafeToRetry is no help: of a connection that broke while the answers of a batch were read it says
// that nothing was sent (pgx 5.12).
func (t *Tx) committed(c *commitStatement, err error) error {
	switch {
	case refused(err) && !(c.reached && uncertain(err)):
		return err
	case err != nil:
		return &UnknownError{Err: err}
	case c.tag.String() != "COMMIT": // it had been aborted without our knowing
		return fmt.Errorf("%w: %w", ErrAborted, pgx.ErrTxCommitRollback)
	}
	t.release()
	if t.access != nil {
		for _, w := range t.access.witnesses() {
			w.Committed()
		}
	}
	return nil
}
