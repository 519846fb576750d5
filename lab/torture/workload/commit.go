package workload

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// commit is a COMMIT of the worker's own. When pgx gives it up, it asks the server to cancel it, which to a COMMIT that waits
// for a standby means not to wait: others could then be told of what a failover loses, and that would be the worker's doing.
// The secret without which the server does not heed such a request is made a wrong one meanwhile.
func commit(ctx context.Context, tx pgx.Tx) error {
	conn := tx.Conn().PgConn()
	invert(conn.SecretKey())
	err := tx.Commit(ctx)
	if !conn.IsClosed() {
		invert(conn.SecretKey())
	}
	return err
}

func invert(secret []byte) {
	for i := range secret {
		secret[i] = ^secret[i]
	}
}
