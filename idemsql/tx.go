package idemsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/txn"
)

// Tx returns a transaction of database/sql as one of pgx, for outbox.Add, inbox.HandleTx and operation.Start, and for what pgx can do
// and database/sql cannot. idem.ExecutionID knows it, if tx is that of a fn. It is not committed or rolled back, and ends with tx.
//
// tx itself may be used in between, and inside of what is called with the pgx.Tx. Like any pgx.Tx, it is for one goroutine at a time, and what it opens is to
// be closed: rows that are left open keep tx from its end.
func Tx(ctx context.Context, tx *sql.Tx) (pgx.Tx, error) {
	if tx == nil {
		return nil, errors.New("idemsql: tx is nil")
	}
	g, err := gripOf(ctx, tx)
	if err != nil {
		return nil, fmt.Errorf("idemsql: Tx: %w", err)
	}
	defer g.release()
	s, ok := g.conn.PgConn().CustomData()[shareOnConn].(*share)
	if !ok || s.tx != tx {
		s = newShare(g.conn, tx, txn.TxOn(g.conn))
	}
	return s.current(), nil
}
