package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

// Cluster is a Postgres with a name that never changes. With several hosts in its address, the address says
// target_session_attrs=read-write.
type Cluster struct {
	Name string
	Pool *pgxpool.Pool
}

// AwayError says that a transaction was refused because its cluster is not the home of the tenant. Nothing was committed.
type AwayError struct {
	Home   string // the cluster that is, or will be; "" if this one does not know
	Moving bool   // the tenant is being moved: ask again in some milliseconds
}

func (e *AwayError) Error() string {
	if e.Moving {
		return "fleet: the tenant is being moved"
	}
	return "fleet: the home of the tenant is another cluster"
}

// Away returns the reason if err says that a transaction was refused for it, and nil otherwise.
func Away(err error) *AwayError {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return nil
	}
	switch refused.Code {
	case "FL001":
		return &AwayError{Home: refused.Detail}
	case "FL002":
		return &AwayError{Moving: true}
	}
	return nil
}

// ErrPlaced says that a tenant is known to the cluster.
var ErrPlaced = errors.New("fleet: the cluster knows the tenant")

// Place makes the cluster the home of a new tenant. That no other cluster is its home is for the caller to see to.
func Place(ctx context.Context, c Cluster, tenant string) error {
	tag, err := c.Pool.Exec(ctx, `INSERT INTO fleet.tenants (tenant, state, cluster) VALUES ($1, 'home', $2) ON CONFLICT DO NOTHING`,
		idem.Scope(tenant), c.Name)
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrPlaced
	}
	return err
}

// ErrNoHome says that no cluster that was asked is the home of the tenant.
var ErrNoHome = errors.New("fleet: no cluster is the home of the tenant")

// Home asks the clusters which of them is the home of the tenant. One that does not answer is an error only if no other is.
func Home(ctx context.Context, clusters []Cluster, tenant string) (Cluster, error) {
	failed := ErrNoHome
	for _, c := range clusters {
		var home bool
		err := c.Pool.QueryRow(ctx, `SELECT state = 'home' FROM fleet.tenants WHERE tenant = $1`, idem.Scope(tenant)).Scan(&home)
		switch {
		case err == nil && home:
			return c, nil
		case err != nil && !errors.Is(err, pgx.ErrNoRows):
			failed = errors.Join(failed, fmt.Errorf("fleet: cluster %s: %w", c.Name, err))
		}
	}
	return Cluster{}, failed
}
