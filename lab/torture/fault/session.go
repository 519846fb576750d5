package fault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/lab/torture/cluster"
)

func sessionKinds() []Kind {
	return []Kind{
		{Name: Terminate, Group: Session, weight: 6, inject: signalSession("pg_terminate_backend")},
		{Name: Cancel, Group: Session, weight: 6, inject: signalSession("pg_cancel_backend")},
		{Name: GhostStandby, Group: Server, weight: 3, inject: ghostStandby},
	}
}

// victims selects the sessions of clients, without those of the torture itself.
const victims = `from pg_stat_activity where backend_type = 'client backend' and application_name <> '` + cluster.Application + `'`

// signalSession returns a fault that calls function, pg_terminate_backend or pg_cancel_backend, for
// a random session.
func signalSession(function string) func(context.Context, *injection) error {
	return func(ctx context.Context, i *injection) error {
		err := i.Cluster.Do(ctx, func(conn *pgx.Conn) error {
			rows, err := conn.Query(ctx, "select pid, coalesce(state, '') "+victims+" order by pid")
			if err != nil {
				return err
			}
			sessions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
				PID   int32
				State string
			}])
			if err != nil {
				return err
			}
			if len(sessions) == 0 {
				return errMissed
			}
			session := choose(i.rng, sessions...)
			i.strike()
			i.detail("%s", session.State)
			_, err = conn.Exec(ctx, "select "+function+"($1)", session.PID)
			return err
		})
		if _, down := errors.AsType[*pgconn.ConnectError](err); down {
			return errMissed // the server is down because of another fault
		}
		return err
	}
}

// ghostStandby makes every COMMIT wait for a standby that does not exist. Such a COMMIT is durable
// and not yet visible to other sessions. The fault ends by terminating or canceling the waiting
// sessions, or by resetting the configuration, which lets them continue.
func ghostStandby(ctx context.Context, i *injection) (err error) {
	if err := i.Cluster.SetSynchronous(ctx, "nobody"); err != nil {
		return err
	}
	i.strike()
	defer func() {
		healing, cancel := context.WithTimeout(context.WithoutCancel(ctx), healLimit)
		defer cancel()
		if healed := i.Cluster.ResetSynchronous(healing); err == nil {
			err = healed
		}
	}()
	if err := awaitParked(ctx, i.Cluster); err != nil {
		return err
	}
	sleep(ctx, i.between(0, 500*time.Millisecond))
	end := choose(i.rng, "pg_terminate_backend", "pg_terminate_backend", "pg_cancel_backend", "")
	if end == "" {
		i.detail("let go")
		return nil
	}
	var ended int
	err = i.Cluster.Do(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "select count("+end+"(pid)) "+victims+" and wait_event = 'SyncRep'").Scan(&ended)
	})
	i.detail("%s of %d", end, ended)
	return err
}

// awaitParked waits until at least one COMMIT waits for the standby. It returns errMissed if that
// does not happen within pointLimit.
func awaitParked(ctx context.Context, c *cluster.Cluster) error {
	limited, cancel := context.WithTimeout(ctx, pointLimit)
	defer cancel()
	return c.Do(limited, func(conn *pgx.Conn) error {
		for {
			var parked bool
			err := conn.QueryRow(limited, "select exists (select "+victims+" and wait_event = 'SyncRep')").Scan(&parked)
			switch {
			case parked:
				return nil
			case limited.Err() != nil:
				return errMissed
			case err != nil:
				return fmt.Errorf("while waiting for a COMMIT: %w", err)
			}
			sleep(limited, 5*time.Millisecond)
		}
	})
}
