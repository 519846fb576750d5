package vitals

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/vitals/db"
)

// readLock is the advisory lock of the process that reads for all: the beginning of the SHA-256 of "idem.vitals/1".
const readLock int64 = -7292804970750936636

// rollbackLimit is how long a server that has fallen silent is waited for.
const rollbackLimit = time.Second

// ReadAlone is Read for the many that would read the same: if another one is at it, it reads nothing, and mine is false.
func ReadAlone(ctx context.Context, pool interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}) (v Vitals, mine bool, err error) {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		return Vitals{}, false, err
	}
	defer func() { // there is nothing to commit
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
		defer cancel()
		tx.Rollback(bounded)
	}()
	turn, err := db.TryTurn(ctx, tx, readLock)
	if err != nil || !turn.Mine {
		return Vitals{}, false, err
	}
	v, err = Read(ctx, tx)
	return v, err == nil, err
}
