package fleet

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// connection is one of a mover's, beside the pool.
type connection struct {
	*pgx.Conn
	warned bool // by the server, since the last commit began
}

func connect(ctx context.Context, c Cluster) (*connection, error) {
	conn := &connection{}
	config := c.Pool.Config().ConnConfig.Copy()
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" {
			conn.warned = true
		}
	}
	var err error
	conn.Conn, err = pgx.ConnectConfig(ctx, config)
	return conn, err
}

func (c *connection) close() { _ = c.Close(context.Background()) } // its locks end with it

// commit is not cancelled by the end of ctx: to a COMMIT that waits for a standby that would mean not to wait, and a failover could
// take back what the other cluster has been told. If a person cancels it, the server warns.
func (c *connection) commit(ctx context.Context, tx pgx.Tx) error {
	c.warned = false
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := tx.Commit(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if c.warned {
		return ErrUnconfirmed
	}
	return nil
}

// tenantState is a row of fleet.tenants; zero if there is none.
type tenantState struct {
	state, cluster string
	copied         int64
}

func stateOf(ctx context.Context, conn *pgx.Conn, tenant string) (s tenantState, err error) {
	err = conn.QueryRow(ctx, `SELECT state, cluster, coalesce(copied, 0) FROM fleet.tenants WHERE tenant = $1`, tenant).
		Scan(&s.state, &s.cluster, &s.copied)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return s, err
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }
