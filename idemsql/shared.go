package idemsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/txn"
)

// sharedTx is the pgx.Tx of a *sql.Tx, or a savepoint in it. Each of its methods keeps database/sql from the connection.
type sharedTx struct {
	pgx.Tx
	*share
	nested bool
}

// Borrow keeps database/sql from the connection.
func (s *sharedTx) Borrow() error { return s.borrow() }

// Return lets it have the connection again.
func (s *sharedTx) Return() { s.give() }

var errNotHere = errors.New("idemsql: end the *sql.Tx, not the pgx.Tx that Tx has made of it")

func (s *sharedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := s.borrow(); err != nil {
		return nil, err
	}
	defer s.give()
	savepoint, err := s.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &sharedTx{Tx: savepoint, share: s.share, nested: true}, nil
}

func (s *sharedTx) Commit(ctx context.Context) error {
	return s.endSavepoint(func() error { return s.Tx.Commit(ctx) })
}

func (s *sharedTx) Rollback(ctx context.Context) error {
	return s.endSavepoint(func() error { return s.Tx.Rollback(ctx) })
}

func (s *sharedTx) endSavepoint(end func() error) error {
	if !s.nested {
		return errNotHere
	}
	if err := s.borrow(); err != nil {
		return err
	}
	defer s.give()
	return end()
}

func (s *sharedTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	if err := s.borrow(); err != nil {
		return 0, err
	}
	defer s.give()
	return s.Tx.CopyFrom(ctx, table, columns, source)
}

func (s *sharedTx) Prepare(ctx context.Context, name, query string) (*pgconn.StatementDescription, error) {
	if err := s.borrow(); err != nil {
		return nil, err
	}
	defer s.give()
	return s.Tx.Prepare(ctx, name, query)
}

func (s *sharedTx) Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	if err := s.borrow(); err != nil {
		return pgconn.CommandTag{}, err
	}
	defer s.give()
	return s.Tx.Exec(ctx, query, args...)
}

func (s *sharedTx) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	if err := s.borrow(); err != nil {
		return pgx.FailedBatchResults(batch, err)
	}
	return &openResults{BatchResults: s.Tx.SendBatch(ctx, batch), open: open{s.give}}
}

func (s *sharedTx) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	if err := s.borrow(); err != nil {
		return failed{err}, err
	}
	rows, err := s.Tx.Query(ctx, query, args...)
	if err != nil {
		s.give()
		return rows, err
	}
	return &openRows{Rows: rows, open: open{s.give}}, nil
}

func (s *sharedTx) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	if err := s.borrow(); err != nil {
		return failed{err}
	}
	return &openRow{Row: s.Tx.QueryRow(ctx, query, args...), open: open{s.give}}
}

// share is a *sql.Tx with the pgx.Tx of the same transaction.
type share struct {
	tx     *sql.Tx
	own    *sharedTx
	isLent bool // the transaction is that of a Do

	mu    sync.Mutex
	given pgx.Tx // to the fn that is running, nil if none is
	users int
	grip  *grip
	over  bool
}

// shareOnConn is the name under which a connection remembers its share.
const shareOnConn = "github.com/idem-go/idem/idemsql: share"

// newShare lets the connection remember the share of its transaction.
func newShare(conn *pgx.Conn, tx *sql.Tx, own pgx.Tx) *share {
	s := &share{tx: tx}
	s.own = &sharedTx{Tx: own, share: s}
	conn.PgConn().CustomData()[shareOnConn] = s
	return s
}

// shareOf returns the share of a transaction that Tx has returned, or an engine has given to a fn.
func shareOf(tx pgx.Tx) *share { return txn.LentOf(tx).(*sharedTx).share }

// pass says which tx the running fn has, and returns which the one before had.
func (s *share) pass(tx pgx.Tx) (before pgx.Tx) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.given = s.given, tx
	return before
}

func (s *share) current() pgx.Tx {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.given != nil {
		return s.given
	}
	return s.own
}

// borrow keeps database/sql from the connection until give.
func (s *share) borrow() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return sql.ErrTxDone
	}
	if s.users == 0 {
		g, err := gripOf(context.Background(), s.tx)
		if err != nil {
			return err
		}
		s.grip = g
	}
	s.users++
	return nil
}

func (s *share) give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users == 0 && s.grip != nil {
		s.grip.release()
		s.grip = nil
	}
}

// revoke ends the use of the pgx.Tx, and reports whether rows or results of it are open.
func (s *share) revoke() (open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	open = s.grip != nil
	if open {
		s.grip.release()
		s.grip = nil
	}
	return open
}

// isGiven reports whether a fn has the transaction.
func (s *share) isGiven() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.isLent && s.given != nil
}

// refuse lets the tx of the running fn refuse its end, by which the call is told.
func (s *share) refuse(end func(pgx.Tx, context.Context) error) error {
	s.mu.Lock()
	tx := s.given
	s.mu.Unlock()
	if tx == nil {
		return fmt.Errorf("%w: fn has returned", idem.ErrTxEnded)
	}
	return end(tx, context.Background())
}
