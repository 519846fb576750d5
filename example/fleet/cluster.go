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

// Cluster is a Postgres cluster with a name that never changes. If the connection string of Pool
// lists several hosts, it must contain target_session_attrs=read-write.
type Cluster struct {
	Name string
	Pool *pgxpool.Pool
}

// AwayError says that the cluster refused a transaction because it is not the home of the tenant.
// Nothing was committed.
type AwayError struct {
	Home   string // name of the home, or of the future home during a move; "" if the cluster does not know it
	Moving bool   // the tenant is being moved: retry after some milliseconds
}

func (e *AwayError) Error() string {
	if e.Moving {
		return "fleet: the tenant is being moved"
	}
	return "fleet: the home of the tenant is another cluster"
}

// Away returns an AwayError if err says that a cluster is not the home of the tenant, and nil
// otherwise.
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

// ErrPlaced is returned by Place if the cluster already knows the tenant.
var ErrPlaced = errors.New("fleet: the cluster knows the tenant")

// Place makes c the home of a new tenant. It returns ErrPlaced if c knows the tenant. The caller
// must ensure that no other cluster is the home.
func Place(ctx context.Context, c Cluster, tenant string) error {
	tag, err := c.Pool.Exec(ctx, `INSERT INTO fleet.tenants (tenant, state, cluster) VALUES ($1, 'home', $2) ON CONFLICT DO NOTHING`,
		idem.Scope(tenant), c.Name)
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrPlaced
	}
	return err
}

// ErrNoHome is returned if none of the clusters is the home of the tenant.
var ErrNoHome = errors.New("fleet: no cluster is the home of the tenant")

// Home returns the cluster that is the home of the tenant. If no cluster that answers is the home,
// it returns ErrNoHome, joined with the errors of the clusters that did not answer.
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
