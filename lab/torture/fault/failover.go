package fault

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/torture/cluster"
)

func synchronousFailover() Leg {
	return Leg{
		Name:  FailoverSync,
		About: "the primary is killed and a synchronous standby takes over: nothing acknowledged is lost",
		stage: func(ctx context.Context, s *Scene, opts LegOptions) error {
			s.act = func(ctx context.Context, i *injection) error {
				i.Cluster.Primary().Kill()
				sleep(ctx, i.between(0, 200*time.Millisecond))
				return i.failOver(ctx)
			}
			return s.start(ctx, opts, cluster.Options{Standby: cluster.Synchronous})
		},
	}
}

func asynchronousFailover() Leg {
	l := Leg{
		Name:  FailoverAsync,
		About: "the primary is killed and a standby that lags behind takes over: keys and effects are lost together",
		Loses: true,
		stage: func(ctx context.Context, s *Scene, opts LegOptions) error {
			s.act = loseTheLatest
			return s.start(ctx, opts, cluster.Options{Standby: cluster.Asynchronous})
		},
	}
	if runtime.GOOS != "linux" {
		l.Possible = errors.New("the receiver of a standby is found by /proc, which is Linux's")
	}
	return l
}

func stalledFailover() Leg {
	l := Leg{
		Name:  FailoverStalled,
		About: "a synchronous standby stalls until the callers have given up, then takes over: what was acknowledged is not lost",
		stage: func(ctx context.Context, s *Scene, opts LegOptions) error {
			s.act = takeOverStalled
			return s.start(ctx, opts, cluster.Options{Standby: cluster.Synchronous})
		},
	}
	if runtime.GOOS != "linux" {
		l.Possible = errors.New("the receiver of a standby is found by /proc, which is Linux's")
	}
	return l
}

// stall is longer than a worker's deadline, the time that the library gives a COMMIT after it, and the one in which it asks
// the outcome of it.
const stall = (4 + 5 + 2) * time.Second

// takeOverStalled stops what receives the log on the standby, so that every COMMIT waits. Nothing of what the primary has
// from then on will be there after the failover.
func takeOverStalled(ctx context.Context, i *injection) error {
	receiver, err := walReceiver(ctx, i.Cluster.Standby())
	if err != nil {
		return err
	}
	i.strike()
	if err := receiver.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	sleep(ctx, stall+i.between(0, time.Second))
	// A server that loses its postmaster lets go of the COMMITs that wait. Nobody must hear of that.
	i.Cluster.Isolate()
	i.Cluster.Primary().Kill()
	if err := forget(ctx, i.Cluster.Standby(), receiver); err != nil {
		return err
	}
	return i.failOver(ctx)
}

// loseTheLatest stops what receives the log on the standby, so that what is committed from then on is lost.
func loseTheLatest(ctx context.Context, i *injection) error {
	receiver, err := walReceiver(ctx, i.Cluster.Standby())
	if err != nil {
		return err
	}
	i.strike()
	i.note(func(e *Event) { e.Loses = true })
	if err := awaitCaughtUp(ctx, i.Cluster); err != nil {
		return err
	}
	if err := receiver.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	sleep(ctx, i.between(200*time.Millisecond, time.Second))
	i.Cluster.Primary().Kill()
	if err := forget(ctx, i.Cluster.Standby(), receiver); err != nil {
		return err
	}
	return i.failOver(ctx)
}

// awaitCaughtUp returns when the standby has on its disk what was committed before: only what follows can be lost.
func awaitCaughtUp(ctx context.Context, c *cluster.Cluster) error {
	return c.Do(ctx, func(conn *pgx.Conn) error {
		var now string
		if err := conn.QueryRow(ctx, "select pg_current_wal_lsn()::text").Scan(&now); err != nil {
			return err
		}
		for {
			var there bool
			err := conn.QueryRow(ctx, "select coalesce(bool_and(flush_lsn >= $1::text::pg_lsn), false) from pg_stat_replication", now).Scan(&there)
			if err != nil || there {
				return err
			}
			sleep(ctx, time.Millisecond)
		}
	})
}

// forget ends the receiver without letting it read what is left in its socket, which it would do on any signal that it
// can handle. The standby takes that for a crash, and recovers what it has on its disk.
func forget(ctx context.Context, standby *pgserver.Server, receiver pgserver.Process) error {
	conn, err := pgx.Connect(ctx, standby.DSN())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if err := receiver.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	for conn.Ping(ctx) == nil { // until the standby has noticed
		sleep(ctx, time.Millisecond)
	}
	for {
		again, err := pgx.Connect(ctx, standby.DSN())
		if err == nil {
			return again.Close(ctx)
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return err
		}
	}
}

func (i *injection) failOver(ctx context.Context) error {
	if err := i.Cluster.Failover(ctx); err != nil {
		return err
	}
	if err := i.Cluster.AwaitReady(ctx); err != nil {
		return err
	}
	return i.Cluster.AddStandby(ctx)
}

func walReceiver(ctx context.Context, standby *pgserver.Server) (pgserver.Process, error) {
	for {
		for _, p := range standby.Processes() {
			if strings.Contains(p.Title, "walreceiver") {
				return p, nil
			}
		}
		if !sleep(ctx, 5*time.Millisecond) {
			return pgserver.Process{}, errors.New("the standby has no process that receives the log")
		}
	}
}
