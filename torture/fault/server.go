package fault

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/pgserver"
	"github.com/idem-go/idem/torture/cluster"
)

func serverKinds() []Kind {
	var linux error
	if runtime.GOOS != "linux" {
		linux = errors.New("the processes of a server are found by /proc, which is Linux's")
	}
	return []Kind{
		{Name: "server-restart", Group: Server, weight: 1, inject: whileDown(fastStop),
			About: "the server is stopped in order and started again"},
		{Name: "server-immediate", Group: Server, weight: 1, inject: whileDown(immediateStop),
			About: "the server is stopped without a checkpoint, and recovers"},
		{Name: "server-kill", Group: Server, weight: 1, inject: whileDown(killServer),
			About: "SIGKILL of the postmaster; what is left of the server goes when it notices"},
		{Name: "backend-kill", Group: Server, weight: 1, inject: killBackend, Possible: linux,
			About: "SIGKILL of one of the server's processes: it ends all sessions and recovers"},
	}
}

func fastStop(s *pgserver.Server) error      { return s.Stop(pgserver.Fast) }
func immediateStop(s *pgserver.Server) error { return s.Stop(pgserver.Immediate) }
func killServer(s *pgserver.Server) error    { s.Kill(); return nil }

// whileDown ends the server, leaves it like that for a moment, and starts it again.
func whileDown(end func(*pgserver.Server) error) func(context.Context, *injection) error {
	return func(ctx context.Context, i *injection) error {
		if err := end(i.Cluster.Primary()); err != nil {
			return err
		}
		sleep(ctx, i.between(0, 300*time.Millisecond))
		return i.revive(ctx)
	}
}

func killBackend(ctx context.Context, i *injection) error {
	err := i.Cluster.Do(ctx, func(conn *pgx.Conn) error {
		victim, err := i.serverProcess(int(conn.PgConn().PID()))
		if err != nil {
			return err
		}
		i.strike()
		i.detail("%s", victim.Title)
		if victim.Signal(syscall.SIGKILL) != nil {
			return errMissed // it has just ended
		}
		// The postmaster has noticed when it ends the other sessions.
		for conn.Ping(ctx) == nil {
			time.Sleep(time.Millisecond)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return i.revive(ctx)
}

// serverProcess chooses a session's backend half of the time, else one of the others, of which there are fewer.
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

func (i *injection) revive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), healLimit)
	defer cancel()
	return revive(ctx, i.Cluster)
}

// revive brings the primary back, if it is down, makes it wait for no ghost, and returns when it takes writes.
func revive(ctx context.Context, c *cluster.Cluster) error {
	if primary := c.Primary(); !primary.Running() {
		if err := primary.Start(ctx); err != nil {
			return err
		}
	}
	for err := c.ResetSynchronous(ctx); err != nil; err = c.ResetSynchronous(ctx) {
		if !sleep(ctx, 20*time.Millisecond) {
			return err
		}
	}
	return c.AwaitReady(ctx)
}
