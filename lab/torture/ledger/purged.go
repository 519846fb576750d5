package ledger

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/torture/history"
)

// Grace is how long a purge keeps an expired record.
const Grace = 100 * time.Millisecond

// Purged is a deleted record. Times are in microseconds.
type Purged struct {
	ExecutionID string `json:"i"`
	Scope       string `json:"s"`
	Key         string `json:"k"`
	State       string `json:"state"`
	Created     int64  `json:"cr"`
	Completed   int64  `json:"co"`
	Expires     int64  `json:"ex"`
}

func takePurged(ctx context.Context, tx pgx.Tx, to *history.Writer) error {
	rows, err := tx.Query(ctx, `select execution_id::text, scope, key, state, created_at, coalesce(completed_at, 'epoch'), expires_at
		from torture.purged`)
	if err != nil {
		return err
	}
	var p Purged
	var created, completed, expires time.Time
	_, err = pgx.ForEachRow(rows, []any{&p.ExecutionID, &p.Scope, &p.Key, &p.State, &created, &completed, &expires}, func() error {
		p.Created, p.Completed, p.Expires = created.UnixMicro(), completed.UnixMicro(), expires.UnixMicro()
		to.Append(Row{Shard: history.ShardOf(p.Scope, p.Key), Purged: &p})
		return nil
	})
	return err
}
