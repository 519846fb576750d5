package workload

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// commit commits a transaction of the worker itself, and makes sure that the COMMIT is never
// canceled.
//
// When the context ends, pgx sends a CancelRequest. A COMMIT that waits for a standby takes it as
// "do not wait": other sessions then see as committed what a failover would lose, and the checker
// would attribute that to the library. A CancelRequest with a wrong secret is ignored by the
// server, so the secret is inverted during the COMMIT.
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
