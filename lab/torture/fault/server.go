package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/torture/cluster"
)

func serverKinds() []Kind {
	var linux error
	if runtime.GOOS != "linux" {
		linux = errors.New("the processes of a server are found by /proc, which is Linux's")
	}
	return []Kind{
		{Name: ServerRestart, Group: Server, weight: 1, inject: whileDown(fastStop)},
		{Name: ServerImmediate, Group: Server, weight: 1, inject: whileDown(immediateStop)},
		{Name: ServerKill, Group: Server, weight: 1, inject: whileDown(killServer)},
		{Name: BackendKill, Group: Server, weight: 1, inject: killBackend, Possible: linux},
	}
}

func fastStop(s *pgserver.Server) error      { return s.Stop(pgserver.Fast) }
func immediateStop(s *pgserver.Server) error { return s.Stop(pgserver.Immediate) }
func killServer(s *pgserver.Server) error    { s.Kill(); return nil }

// whileDown returns a fault that ends the server with the function end, waits up to 300 ms, and
// starts it again.
func whileDown(end func(*pgserver.Server) error) func(context.Context, *injection) error {
	return func(ctx context.Context, i *injection) error {
		if err := end(i.Cluster.Primary()); err != nil {
			return err
		}
		sleep(ctx, i.between(0, 300*time.Millisecond))
		return i.revive(ctx)
	}
}

// killBackend kills one process of the server other than the postmaster. The postmaster then ends
// all sessions and recovers, because the process may have corrupted shared memory.
func killBackend(ctx context.Context, i *injection) error {
	err := i.Cluster.Do(ctx, func(conn *pgx.Conn) error {
		victim, err := i.serverProcess(int(conn.PgConn().PID()))
		if err != nil {
			return err
		}
		i.strike()
		err = victim.Crash(ctx)
		if errors.Is(err, os.ErrProcessDone) {
			return errMissed
		}
		// The postmaster notices a little later. It has noticed when it ends this session.
		for err == nil && conn.Ping(ctx) == nil {
			sleep(ctx, time.Millisecond)
		}
		return errors.Join(err, ctx.Err())
	})
	if err != nil {
		return err
	}
	return i.revive(ctx)
}

// serverProcess returns the backend of a session half of the time, and an auxiliary process
// otherwise. A uniform choice would rarely pick an auxiliary process, because there are few of
// them. It never returns the process with the given PID.
func (i *injection) serverProcess(except int) (pgserver.Process, error) {
	session := i.rng.IntN(2) == 0
	var eligible []pgserver.Process
	for _, p := range i.Cluster.Primary().Processes() {
		if p.PID != except && strings.Contains(p.Title, "127.0.0.1") == session {
			eligible = append(eligible, p)
		}
	}
	if len(eligible) == 0 {
		return pgserver.Process{}, errMissed
	}
	return choose(i.rng, eligible...), nil
}

// revive repairs the primary even if ctx has ended, within healLimit.
func (i *injection) revive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), healLimit)
	defer cancel()
	return revive(ctx, i.Cluster)
}

// revive starts the primary if it is down, resets synchronous_standby_names, and returns when the
// primary takes writes. It checks in every round whether the server runs, because a server that
// runs may still be about to stop from an earlier fault.
func revive(ctx context.Context, c *cluster.Cluster) error {
	for failures := 0; ; {
		if primary := c.Primary(); !primary.Running() {
			if err := primary.Start(ctx); err != nil {
				if failures++; failures == maxStarts || ctx.Err() != nil {
					return err
				}
				continue
			}
		}
		err := c.ResetSynchronous(ctx)
		if err == nil {
			err = c.Writable(ctx)
		}
		if err == nil {
			return nil
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return fmt.Errorf("%w, last because: %w", ctx.Err(), err)
		}
	}
}

// maxStarts is how often revive tries to start a server that does not come up.
const maxStarts = 3

var sessionKinds = []Kind{
	{Name: Terminate, Group: Session, weight: 6, inject: signalSession("pg_terminate_backend")},
	{Name: Cancel, Group: Session, weight: 6, inject: signalSession("pg_cancel_backend")},
	{Name: GhostStandby, Group: Server, weight: 3, inject: ghostStandby},
}

// victims selects the sessions of clients, without those of the torture itself.
const victims = `from pg_stat_activity where backend_type = 'client backend' and application_name <> '` + cluster.Application + `'`

// signalSession returns a fault that calls the given function, pg_terminate_backend or
// pg_cancel_backend, for a random session.
func signalSession(function string) func(context.Context, *injection) error {
	return func(ctx context.Context, i *injection) error {
		err := i.Cluster.Do(ctx, func(conn *pgx.Conn) error {
			rows, err := conn.Query(ctx, "select pid "+victims+" order by pid")
			if err != nil {
				return err
			}
			sessions, err := pgx.CollectRows(rows, pgx.RowTo[int32])
			if err != nil {
				return err
			}
			if len(sessions) == 0 {
				return errMissed
			}
			session := choose(i.rng, sessions...)
			i.strike()
			_, err = conn.Exec(ctx, "select "+function+"($1)", session)
			return err
		})
		if _, down := errors.AsType[*pgconn.ConnectError](err); down {
			return errMissed // the server is down because of another fault
		}
		return err
	}
}

// ghostStandby makes every COMMIT wait for a standby that does not exist. A waiting COMMIT is
// durable but not yet visible to other sessions. The fault ends by terminating or canceling the
// waiting sessions, or by resetting the configuration, which lets them continue.
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
		return nil
	}
	return i.Cluster.Exec(ctx, "select "+end+"(pid) "+victims+" and wait_event = 'SyncRep'")
}

// awaitParked waits until at least one COMMIT waits for the standby. It returns errMissed if that
// does not happen within pointLimit.
func awaitParked(ctx context.Context, c *cluster.Cluster) error {
	limited, cancel := context.WithTimeout(ctx, pointLimit)
	defer cancel()
	err := c.Await(limited, "select exists (select "+victims+" and wait_event = 'SyncRep')")
	switch {
	case err == nil:
		return nil
	case limited.Err() != nil:
		return errMissed
	}
	return fmt.Errorf("while waiting for a COMMIT: %w", err)
}
