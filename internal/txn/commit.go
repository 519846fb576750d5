package txn

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Commit sends requests and COMMIT in one round trip.
//
// If ctx has ended, nothing is sent. If ctx ends later, Commit still waits for the answer, up to
// Limits.Commit. After that it returns an *UnknownError and the COMMIT continues on its connection.
// If a part of the answer has arrived by then, Commit closes the connection instead.
//
// A COMMIT is never canceled. While a COMMIT waits for a synchronous standby, Postgres takes a
// CancelRequest as "do not wait". The primary would then show the transaction as committed although
// no standby has it.
//
// After an *UnknownError the requests must not be used again, because their answers may still
// arrive.
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
		return t.committed(c, askUncanceled(t.conn, requests))
	}
	s := socketOn(t.conn)
	if s == nil || !isQuiet(t.conn.PgConn()) {
		return t.commitInBackground(ctx, t.engine.Limits.Commit, func() error { return askUncanceled(t.conn, requests) })
	}
	return t.commitInPlace(ctx, s, requests)
}

// After a write longer than slowWrite, pgx may be reading in the background. slowWrite is on the
// safe side: pgx begins to read after 15 ms (pgx 5.12).
const slowWrite = 5 * time.Millisecond

// commitInPlace sends requests and waits for the answer on the goroutine of the caller. Another
// goroutine would cost more processor time for the wakeup of its thread than all other work of the
// library in a call (make bench/profile).
//
// commitInPlace waits until the socket is readable, and only then reads. While nothing has arrived,
// it can still leave the read to another goroutine and return. Once it reads, it can no longer do
// that: if the rest of the answer does not arrive in time, it closes the connection.
func (t *Tx) commitInPlace(ctx context.Context, s *socket, requests []Request) error {
	pg := t.conn.PgConn()
	d := newAnswerDeadline(ctx, t.engine.Limits.Commit, pg.Conn())
	defer d.stop() // even if a notice handler of the application panics
	begun := time.Now()
	u := sendUncanceled(t.conn, requests)
	slow := time.Since(begun) > slowWrite
	switch waitForAnswer(pg, s, d, slow) {
	case answerHidden:
		return t.commitInBackground(ctx, d.remaining(), u.read)
	case answerMissing:
		answers := make(chan answer, 1)
		go answered(answers, u.read)
		t.keepPending(answers)
		return t.noAnswer(ctx)
	case answerReady:
	}
	return t.readAnswer(ctx, d, u)
}

// readAnswer reads the answer to COMMIT. If only a part of the answer arrives, the deadline
// interrupts the read.
func (t *Tx) readAnswer(ctx context.Context, d *answerDeadline, u uncanceled) error {
	err := u.read()
	expired := d.stop()
	if expired && t.conn.IsClosed() { // pgx takes seconds to close the connection, but the pool needs its slot at once
		t.dropConn()
	}
	if expired && err != nil && !refused(err) {
		return t.noAnswer(ctx)
	}
	return t.committed(&t.commit, err)
}

// answerState is what the socket shows of the answer to a COMMIT.
type answerState int

const (
	// answerReady: a read would not block. The answer has begun to arrive, or the read fails at
	// once.
	answerReady answerState = iota
	// answerHidden: the socket does not show whether the answer has arrived. pgx may be reading in
	// the background after a slow write, or TLS may already have read the end of the connection.
	answerHidden
	// answerMissing: nothing of the answer has arrived, and the deadline has expired.
	answerMissing
)

// waitForAnswer waits until the answer begins to arrive or the deadline expires. Before it returns
// answerHidden or answerMissing, waitForAnswer stops the deadline, so that the next reader can use
// the socket.
func waitForAnswer(pg *pgconn.PgConn, s *socket, d *answerDeadline, slow bool) answerState {
	if slow {
		if d.stop() && pg.IsClosed() { // the deadline interrupted the write
			return answerReady
		}
		return answerHidden
	}
	if nothingSent := !pg.IsBusy(); nothingSent {
		return answerReady
	}
	if s.readsAhead {
		d.limitReads(readAheadWait)
	}
	switch {
	case s.waitReadable():
		d.unlimitReads()
		return answerReady
	case d.stop():
		return answerMissing
	case s.readsAhead:
		return answerHidden
	}
	return answerReady // the socket was closed
}

// readAheadWait is how long a COMMIT over TLS waits for its socket to become readable before it
// reads through TLS. TLS may have read the end of the connection together with an earlier answer.
// Then nothing more arrives on the socket, and only a read through TLS notices the end.
const readAheadWait = 200 * time.Millisecond

// isQuiet reports whether pgx has no unread data and is not reading in the background, as it may
// after an earlier write. With an ended context, SyncConn checks this without waiting.
func isQuiet(pg *pgconn.PgConn) bool {
	return !pg.IsBusy() && !pg.IsClosed() && pg.SyncConn(endedContext) == nil
}

var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// commitInBackground runs trip, which is the round trip or the rest of it, on another goroutine.
// After the end of ctx, commitInBackground waits no longer than the duration patience.
func (t *Tx) commitInBackground(ctx context.Context, patience time.Duration, trip func() error) error {
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
	t.keepPending(answers)
	return t.noAnswer(ctx)
}

func (t *Tx) noAnswer(ctx context.Context) error {
	return &UnknownError{Err: fmt.Errorf("no answer came within %v after the end of the context: %w", t.engine.Limits.Commit, context.Cause(ctx))}
}

// committed returns the result of Commit if its round trip returned err.
//
// An ordinary error of the server means that nothing was committed. Any other error leaves the
// outcome unknown, because the server may report the end of a session, or even its own crash, after
// the commit has become durable. Some servers use an ordinary error to say that they do not know
// the outcome.
//
// pgconn.SafeToRetry cannot be used here. If a connection breaks while the answers of a batch are
// read, SafeToRetry reports that nothing was sent (pgx 5.12).
func (t *Tx) committed(c *commitStatement, err error) error {
	switch {
	case refused(err) && !(c.reached && uncertain(err)):
		return err
	case err != nil:
		return &UnknownError{Err: err}
	case c.tag.String() != "COMMIT": // the transaction was aborted, and the server answered ROLLBACK
		return fmt.Errorf("%w: %w", ErrAborted, pgx.ErrTxCommitRollback)
	}
	t.release()
	if t.access != nil {
		for _, l := range t.access.listeners() {
			l.Committed()
		}
	}
	return nil
}
