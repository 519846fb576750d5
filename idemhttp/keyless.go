package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
)

const (
	defaultRetries = 3
	commitLimit    = 5 * time.Second // how long a COMMIT under way, or a rollback, outlives the request
)

// errUnknownWithoutKey says that a COMMIT was not acknowledged. There is no record to ask.
var errUnknownWithoutKey = errors.New("idemhttp: COMMIT was not acknowledged, and the request had no key to ask by")

// runKeyless runs the handler in a transaction that records nothing, again after a serialization failure or a deadlock.
func (x *exchange) runKeyless(ctx context.Context) error {
	retries := x.config.Retries
	if retries == 0 {
		retries = defaultRetries
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := x.attemptKeyless(ctx)
		if err == nil || retries <= 0 || !rerunnable(err) {
			return err
		}
		retries--
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause + rand.N(pause)):
		}
	}
}

func (x *exchange) attemptKeyless(ctx context.Context) error {
	tx, err := x.pool.BeginTx(ctx, x.config.TxOptions)
	if err != nil {
		return err
	}
	outlasting := context.WithoutCancel(ctx)
	defer func() { // also if the handler panics
		bounded, cancel := context.WithTimeout(outlasting, commitLimit)
		defer cancel()
		_ = tx.Rollback(bounded)
	}()
	guard := &keylessTx{Tx: tx}
	decision, err := x.run(guard)
	switch {
	case err != nil:
		return err
	case guard.ended:
		return fmt.Errorf("%w: the handler called Commit or Rollback on the tx", idem.ErrTxEnded)
	case decision != Commit:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if err := unfit(tx.Conn()); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(outlasting, commitLimit)
	defer cancel()
	return commitError(tx.Commit(bounded))
}

// unfit tells why the transaction, as the handler left it, cannot be committed. An aborted one is found out by COMMIT.
func unfit(conn *pgx.Conn) error {
	switch {
	case conn.IsClosed():
		return fmt.Errorf("%w: its connection was lost", idem.ErrTxAborted)
	case conn.PgConn().IsBusy():
		return fmt.Errorf("%w: rows or batch results were left open", idem.ErrTxAborted)
	case conn.PgConn().TxStatus() == 'I':
		return fmt.Errorf("%w: a statement of the handler did", idem.ErrTxEnded)
	}
	return nil
}

// commitError tells an error after which nothing is committed from one that says nothing about the COMMIT.
func commitError(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, pgx.ErrTxCommitRollback) { // the handler has ignored the error of a statement
		return fmt.Errorf("%w: %w", idem.ErrTxAborted, err)
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.SeverityUnlocalized == "ERROR" {
		return err
	}
	return fmt.Errorf("%w: %w", errUnknownWithoutKey, err)
}

func rerunnable(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pgErr.Code == "40001" || pgErr.Code == "40P01")
}

// keylessTx is the tx of a request without a key. The handler must not end it.
type keylessTx struct {
	pgx.Tx
	ended bool
}

func (tx *keylessTx) Commit(context.Context) error   { return tx.refuse("Commit") }
func (tx *keylessTx) Rollback(context.Context) error { return tx.refuse("Rollback") }

func (tx *keylessTx) refuse(method string) error {
	tx.ended = true
	return fmt.Errorf("%w: %s is refused; answer with an error to roll back", idem.ErrTxEnded, method)
}
