package idemsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/txn"
)

// Tx returns a database/sql transaction as a pgx.Tx, for outbox.Add, inbox.HandleTx and
// operation.Start, and for the features of pgx that database/sql lacks. If tx is the transaction of
// an fn, idem.ExecutionID accepts the pgx.Tx and returns the id of the execution. The pgx.Tx cannot
// be committed or rolled back. It ends with tx.
//
// tx itself can still be used, also inside a function that gets the pgx.Tx. Like any pgx.Tx, the
// result is for one goroutine at a time. Rows and batch results must be closed: while they are
// open, tx cannot end.
func Tx(ctx context.Context, tx *sql.Tx) (pgx.Tx, error) {
	if tx == nil {
		return nil, errors.New("idemsql: tx is nil")
	}
	pinned, err := pin(ctx, tx)
	if err != nil {
		return nil, fmt.Errorf("idemsql: Tx: %w", err)
	}
	defer pinned.release()
	pair, ok := pinned.conn.PgConn().CustomData()[pairKey].(*txPair)
	if !ok || pair.sqlTx != tx {
		pair = newPair(pinned.conn, tx, txn.TxOn(pinned.conn))
	}
	return pair.current(), nil
}
