package fleet

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// connection is a connection of a move, outside the pool.
type connection struct {
	*pgx.Conn
	warned bool // the server has sent a warning since the last commit began
}

func connect(ctx context.Context, c Cluster) (*connection, error) {
	conn := &connection{}
	config := c.Pool.Config().ConnConfig.Copy()
	config.RuntimeParams["application_name"] = "fleet mover"
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" {
			conn.warned = true
		}
	}
	var err error
	conn.Conn, err = pgx.ConnectConfig(ctx, config)
	return conn, err
}

// close closes the connection, which also releases the locks of its session.
func (c *connection) close() { _ = c.Close(context.Background()) }

// commit commits tx. The end of ctx does not cancel a COMMIT that was sent. A COMMIT that waits for
// a synchronous standby would treat the cancellation as "do not wait". A failover could then lose a
// commit on which the other cluster already relies. If an operator cancels the wait for the
// standby, the server sends a warning and commit returns ErrUnconfirmed.
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

// tenantState is the row of a tenant in fleet.tenants, or zero if the tenant has no row.
type tenantState struct {
	state, cluster string
}

func stateOf(ctx context.Context, conn *pgx.Conn, tenant string) (s tenantState, err error) {
	err = conn.QueryRow(ctx, `SELECT state, cluster FROM fleet.tenants WHERE tenant = $1`, tenant).Scan(&s.state, &s.cluster)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return s, err
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }
