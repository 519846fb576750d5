package fault

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/torture/cluster"
)

// takeOver kills the primary, and the standby takes over.
func takeOver(ctx context.Context, i *injection) error {
	i.Cluster.Primary().Kill()
	sleep(ctx, i.between(0, 200*time.Millisecond))
	return i.failOver(ctx)
}

// stall is the sum of three times: the deadline of a worker's call (4 s), the time for which the
// library then waits for the COMMIT (5 s), and the time in which it asks for the outcome (2 s).
const stall = (4 + 5 + 2) * time.Second

// takeOverStalled shows why the library must never cancel a COMMIT. A canceled COMMIT would be
// visible on the primary without being on the standby, and a failover would lose it.
//
// takeOverStalled stops the WAL receiver of the standby, so that every COMMIT waits for the
// standby. After stall, the primary is killed and the standby takes over. The standby has nothing
// that the primary wrote after the receiver was stopped.
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
	// A backend whose postmaster dies stops waiting for the standby and may acknowledge its COMMIT.
	// No client may receive that acknowledgement, so the clients are cut off first.
	i.Cluster.Isolate()
	i.Cluster.Primary().Kill()
	if err := forget(ctx, i.Cluster.Standby(), receiver); err != nil {
		return err
	}
	return i.failOver(ctx)
}

// loseTheLatest stops the WAL receiver of an asynchronous standby, then kills the primary. What was
// committed after the receiver was stopped is lost. The checker excuses a lost key if its effect is
// lost too.
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

// awaitCaughtUp waits until the standby has flushed everything that the primary has written so far.
// So only commits during the event of the fault can be lost.
func awaitCaughtUp(ctx context.Context, c *cluster.Cluster) error {
	var now string
	err := c.Do(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "select pg_current_wal_lsn()::text").Scan(&now)
	})
	if err != nil {
		return err
	}
	return c.Await(ctx, "select coalesce(bool_and(flush_lsn >= $1::text::pg_lsn), false) from pg_stat_replication", now)
}

// forget kills the WAL receiver so that the standby loses what is still in the socket of the
// receiver.
//
// The receiver is stopped at this point, and any signal that it can handle would let it read the
// rest of its socket first. SIGKILL does not. The standby takes the death of the process for a
// crash, restarts, and recovers what is on its disk. forget returns when the standby has restarted.
func forget(ctx context.Context, standby *pgserver.Server, receiver pgserver.Process) error {
	conn, err := pgx.Connect(ctx, standby.DSN())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if err := receiver.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	for conn.Ping(ctx) == nil { // wait until the standby ends its sessions
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

// failOver promotes the standby, waits until it takes writes, and adds a new standby.
func (i *injection) failOver(ctx context.Context) error {
	if err := i.Cluster.Failover(ctx); err != nil {
		return err
	}
	if err := i.Cluster.AwaitReady(ctx); err != nil {
		return err
	}
	return i.Cluster.AddStandby(ctx)
}

// walReceiver returns the process of the standby that receives the WAL. It waits for one to start.
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
