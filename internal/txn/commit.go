package txn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Commit sends requests and COMMIT: one round trip. If ctx has ended nothing is sent. If it ends later, the answer is still
// waited for, for as long as Limits.Commit; then the connection is left alone with its COMMIT, and the error is an
// *UnknownError. The COMMIT is never cancelled: to a transaction that waits for a synchronous standby, a CancelRequest means
// not to wait, and the primary would show as committed what no standby has.
//
// After an *UnknownError the requests must not be used again: their answers may still come.
func (t *Tx) Commit(ctx context.Context, requests ...Request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c := &commitStatement{sql: t.engine.Options.CommitQuery}
	requests = append(requests, c)
	if ctx.Done() == nil {
		return t.committed(c, askUncancelled(t.conn, requests))
	}
	answer := make(chan answer, 1)
	go answerUncancelled(t.conn, requests, answer)
	select {
	case a := <-answer:
		return t.committed(c, a.get())
	case <-ctx.Done():
	}
	grace := time.NewTimer(t.engine.Limits.Commit)
	defer grace.Stop()
	select {
	case a := <-answer:
		return t.committed(c, a.get())
	case <-grace.C:
	}
	t.leaveAlone(answer)
	return &UnknownError{Err: fmt.Errorf("no answer came within %v after the end of the context: %w", t.engine.Limits.Commit, context.Cause(ctx))}
}

// committed tells what the answer to COMMIT means. An ordinary error of the server means that nothing was committed. Any
// other says nothing about the COMMIT: the server reports a session that it ends, or even its own crash, after the commit has
// become durable. pgconn.SafeToRetry is no help: of a connection that broke while the answers of a batch were read it says
// that nothing was sent (pgx 5.12).
func (t *Tx) committed(c *commitStatement, err error) error {
	switch {
	case refused(err):
		return err
	case err != nil:
		return &UnknownError{Err: err}
	case c.tag.String() != "COMMIT": // it had been aborted without our knowing
		return fmt.Errorf("%w: %w", ErrAborted, pgx.ErrTxCommitRollback)
	}
	t.release()
	return nil
}

// answer is what came of a round trip on another goroutine.
type answer struct {
	err      error
	panicked any // a handler of the caller's, for a notice or a notification
}

// get returns the error, or goes on with the panic.
func (a answer) get() error {
	if a.panicked != nil {
		panic(a.panicked)
	}
	return a.err
}

// answerUncancelled always sends an answer, also if a handler of the caller's panics or ends the goroutine.
func answerUncancelled(conn *pgx.Conn, requests []Request, to chan<- answer) {
	a := answer{err: &UnknownError{Err: errors.New("a handler of notices has ended the goroutine")}}
	defer func() {
		a.panicked = recover()
		to <- a
	}()
	a.err = askUncancelled(conn, requests)
}

// askUncancelled makes a round trip that no CancelRequest can disturb. pgx sends one whenever it gives a connection up in
// the middle of a query, also for a network error. It takes the secret from the slice that SecretKey returns, so what it sends
// meanwhile is none that the server knows.
func askUncancelled(conn *pgx.Conn, requests []Request) error {
	secret := conn.PgConn().SecretKey()
	scramble(secret)
	err := ask(context.Background(), conn, requests)
	if !conn.IsClosed() {
		scramble(secret)
	}
	return err
}

// scramble makes a secret another one, or makes it itself again.
func scramble(secret []byte) {
	for i := range secret {
		secret[i] ^= 0xa5
	}
}
