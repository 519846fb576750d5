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

// sharedTx is the pgx.Tx of a *sql.Tx, or a savepoint in it. Each method pins the connection while
// it works, so that database/sql cannot use it at the same time.
type sharedTx struct {
	pgx.Tx
	*txPair
	nested bool
}

// Borrow pins the connection for a caller that uses the connection directly instead of through s.
func (s *sharedTx) Borrow() error { return s.borrow() }

// Return releases the connection.
func (s *sharedTx) Return() { s.release() }

var errEndSQLTx = errors.New("idemsql: the pgx.Tx of a *sql.Tx cannot be committed or rolled back; end the *sql.Tx instead")

func (s *sharedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := s.borrow(); err != nil {
		return nil, err
	}
	defer s.release()
	savepoint, err := s.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &sharedTx{Tx: savepoint, txPair: s.txPair, nested: true}, nil
}

func (s *sharedTx) Commit(ctx context.Context) error {
	return s.endSavepoint(func() error { return s.Tx.Commit(ctx) })
}

func (s *sharedTx) Rollback(ctx context.Context) error {
	return s.endSavepoint(func() error { return s.Tx.Rollback(ctx) })
}

func (s *sharedTx) endSavepoint(end func() error) error {
	if !s.nested {
		return errEndSQLTx
	}
	if err := s.borrow(); err != nil {
		return err
	}
	defer s.release()
	return end()
}

func (s *sharedTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	if err := s.borrow(); err != nil {
		return 0, err
	}
	defer s.release()
	return s.Tx.CopyFrom(ctx, table, columns, source)
}

func (s *sharedTx) Prepare(ctx context.Context, name, query string) (*pgconn.StatementDescription, error) {
	if err := s.borrow(); err != nil {
		return nil, err
	}
	defer s.release()
	return s.Tx.Prepare(ctx, name, query)
}

func (s *sharedTx) Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	if err := s.borrow(); err != nil {
		return pgconn.CommandTag{}, err
	}
	defer s.release()
	return s.Tx.Exec(ctx, query, args...)
}

func (s *sharedTx) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	if err := s.borrow(); err != nil {
		return pgx.FailedBatchResults(batch, err)
	}
	return &heldResults{BatchResults: s.Tx.SendBatch(ctx, batch), hold: hold{s.release}}
}

func (s *sharedTx) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	if err := s.borrow(); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	}
	rows, err := s.Tx.Query(ctx, query, args...)
	if err != nil {
		s.release()
		return rows, err
	}
	return &heldRows{Rows: rows, hold: hold{s.release}}, nil
}

func (s *sharedTx) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	if err := s.borrow(); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).QueryRow()
	}
	return &heldRow{Row: s.Tx.QueryRow(ctx, query, args...), hold: hold{s.release}}
}

// txPair is a *sql.Tx and a pgx.Tx that are the same transaction on the same connection. Its lock
// guards their use of the connection.
type txPair struct {
	sqlTx *sql.Tx
	pgxTx *sharedTx
	ofDo  bool // the transaction was begun by Do, not by the caller

	mu     sync.Mutex
	fnTx   pgx.Tx // the transaction of the running fn; nil if no fn runs
	users  int    // calls of borrow that no release has followed yet
	pinned *pinnedConn
	closed bool // pgxTx can no longer be used
}

// pairKey is the key of the txPair in the custom data of its connection.
const pairKey = "github.com/idem-go/idem/idemsql: txPair"

// newPair returns the txPair of sqlTx and pgxTx, which are the same transaction on conn. It stores
// the txPair in the custom data of conn.
func newPair(conn *pgx.Conn, sqlTx *sql.Tx, pgxTx pgx.Tx) *txPair {
	p := &txPair{sqlTx: sqlTx}
	p.pgxTx = &sharedTx{Tx: pgxTx, txPair: p}
	conn.PgConn().CustomData()[pairKey] = p
	return p
}

// pairOf returns the txPair of tx, which the function Tx has returned or which an fn got.
func pairOf(tx pgx.Tx) *txPair { return txn.LentOf(tx).(*sharedTx).txPair }

// setFnTx sets the transaction of the running fn, and returns the previous value.
func (p *txPair) setFnTx(tx pgx.Tx) (before pgx.Tx) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, p.fnTx = p.fnTx, tx
	return before
}

// current returns the transaction of the running fn, or else pgxTx.
func (p *txPair) current() pgx.Tx {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fnTx != nil {
		return p.fnTx
	}
	return p.pgxTx
}

// borrow pins the connection. The connection stays pinned until release has been called once for
// each call of borrow. borrow returns sql.ErrTxDone if the pair is closed or the transaction has
// ended.
func (p *txPair) borrow() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return sql.ErrTxDone
	}
	if p.users == 0 {
		pinned, err := pin(context.Background(), p.sqlTx)
		if err != nil {
			return err
		}
		p.pinned = pinned
	}
	p.users++
	return nil
}

func (p *txPair) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users--; p.users == 0 {
		p.unpin()
	}
}

// close makes pgxTx unusable and unpins the connection. It reports whether rows or batch results of
// pgxTx were open.
func (p *txPair) close() (wasOpen bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, wasOpen = true, p.pinned != nil
	p.unpin()
	return wasOpen
}

// unpin releases the pinned connection, if there is one. The caller holds mu.
func (p *txPair) unpin() {
	if p.pinned != nil {
		p.pinned.release()
		p.pinned = nil
	}
}

// inJoinedFn reports whether the fn of a DoTx is running in the transaction.
func (p *txPair) inJoinedFn() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.ofDo && p.fnTx != nil
}

// refuse returns the error for an fn that tries to end its transaction. end is the Commit or
// Rollback of pgx.Tx. refuse calls end on the guarded pgx.Tx of the fn, which returns the error and
// makes Do or DoTx fail.
func (p *txPair) refuse(end func(pgx.Tx, context.Context) error) error {
	p.mu.Lock()
	tx := p.fnTx
	p.mu.Unlock()
	if tx == nil {
		return fmt.Errorf("%w: fn has returned", idem.ErrTxEnded)
	}
	return end(tx, context.Background())
}
