package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/pgserver/child"
	"github.com/idem-go/idem/lab/torture/cluster"
)

// failSync makes the next fdatasync of each process of the server fail with EIO, until one has
// failed. Later calls succeed, because the server must be able to recover.
func failSync(ctx context.Context, i *injection) error {
	dir, err := os.MkdirTemp("", "idem-strace-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	err = i.Cluster.Do(ctx, func(conn *pgx.Conn) error {
		log := filepath.Join(dir, "log")
		tracer, err := trace(i.Cluster.Primary(), log)
		if err != nil {
			return err
		}
		err = awaitInjected(ctx, tracer, log, i.Cluster)
		i.strike()
		_ = tracer.Signal(syscall.SIGTERM) // strace detaches from the processes
		<-tracer.Done()
		for err == nil && conn.Ping(ctx) == nil { // until the server has ended all sessions
			time.Sleep(time.Millisecond)
		}
		return err
	})
	return errors.Join(err, i.revive(ctx))
}

// trace attaches strace to all processes of the server, and to the processes that they fork.
func trace(server *pgserver.Server, log string) (*child.Process, error) {
	args := []string{"--follow-forks", "--output", log, "--trace=fdatasync", "--inject=fdatasync:error=EIO:when=1",
		"--attach=" + strconv.Itoa(server.PID())}
	for _, p := range server.Processes() {
		args = append(args, "--attach="+strconv.Itoa(p.PID))
	}
	cmd := exec.Command("strace", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return child.Start(cmd, syscall.SIGTERM)
}

// awaitInjected waits until an fdatasync has failed. It commits a message of its own every 50 ms,
// so that there is an fdatasync even if the workers are idle.
func awaitInjected(ctx context.Context, tracer *child.Process, log string, c *cluster.Cluster) error {
	for {
		select {
		case <-tracer.Done():
			return errors.New("strace has ended")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
		if calls, _ := os.ReadFile(log); bytes.Contains(calls, []byte("(INJECTED)")) {
			return nil
		}
		_ = c.Exec(ctx, "select pg_logical_emit_message(true, 'torture', '')")
	}
}

// tracePossible returns nil if strace can inject faults into a running process. To learn that, it
// attaches strace to a process of its own.
var tracePossible = sync.OnceValue(func() error {
	if _, err := optional.Find("strace"); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "idem-strace-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	victim, err := child.Start(exec.Command("sleep", "60"), syscall.SIGKILL)
	if err != nil {
		return err
	}
	defer victim.Kill()
	log := filepath.Join(dir, "log")
	tracer, err := child.Start(exec.Command("strace", "--output", log, "--inject=fdatasync:error=EIO:when=1",
		"--attach="+strconv.Itoa(victim.PID())), syscall.SIGTERM)
	if err != nil {
		return err
	}
	for {
		select {
		case <-tracer.Done():
			return errors.New("strace may not trace here")
		case <-time.After(5 * time.Millisecond):
		}
		if traced(victim.PID()) {
			_ = tracer.Signal(syscall.SIGTERM)
			<-tracer.Done()
			return nil
		}
	}
})

// traced reports whether a process has a tracer.
func traced(pid int) bool {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, tracer, found := bytes.Cut(status, []byte("TracerPid:\t"))
	return found && !bytes.HasPrefix(tracer, []byte("0\n"))
}
