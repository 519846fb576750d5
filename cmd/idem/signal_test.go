package main_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

// process is a running command.
type process struct {
	*exec.Cmd
	over           chan struct{}
	stdout, stderr bytes.Buffer
}

func start(t *testing.T, dsn string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.CommandContext(context.Background(), program, args...), over: make(chan struct{})}
	p.Env = append(os.Environ(), "DATABASE_URL="+dsn)
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.over)
		_ = p.Wait()
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.over
	})
	return p
}

// wait waits for the end of the command and returns its output.
func (p *process) wait() ran {
	<-p.over
	return ran{p.ProcessState.ExitCode(), p.stdout.String(), p.stderr.String()}
}

// The proxy delays the first statements of each command in turn. The signal arrives during the
// delay.
func TestSignal_EndsEveryCommandAtAnyStatement(t *testing.T) {
	t.Parallel()
	const statements = 3
	for _, args := range [][]string{
		{"doctor"}, {"stats", "--exact"}, {"list"}, {"explain", "s", "k"}, {"watch", "--json"}, {"purge", "--yes"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			for nth := 1; nth <= statements; nth++ {
				if !interruptAt(t, dsn, nth, args) {
					return
				}
			}
		})
	}
}

// A migration that has begun runs to its end if the server answers, and releases no lock but its
// own.
func TestMigrate_InterruptLeavesNoHalfMigration(t *testing.T) {
	t.Parallel()
	for _, nth := range []int{4, 12, 20} {
		t.Run(fmt.Sprint(nth), func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.EmptyDSN(t)
			proxy := pgtest.Proxy(t, dsn)
			var seen atomic.Int64
			trap := proxy.Arm(pgproxy.Before(func(pgproxy.Statement) bool { return seen.Add(1) == int64(nth) }), pgproxy.Freeze)
			cmd := start(t, proxy.DSN(), "migrate", "up", "--yes")
			held := <-trap.Fired()
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			held.Conn.Resume()
			got, again := cmd.wait(), run(t, []string{"DATABASE_URL=" + dsn}, "migrate", "status")
			if got.code != 0 || again.code != 0 {
				t.Errorf("%+v, and then %+v", got, again)
			}
			pool := pgtest.Open(t, dsn)
			var locks int
			err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_class WHERE relname = 'idem_goose_lock'").Scan(&locks)
			if err == nil && locks > 0 {
				err = pool.QueryRow(t.Context(), "SELECT count(*) FROM idem_goose_lock WHERE locked").Scan(&locks)
			}
			if err != nil || locks > 0 {
				t.Errorf("%d locks are left, %v", locks, err)
			}
		})
	}
}

// interruptAt interrupts a command at its nth statement, and reports whether it has that many.
func interruptAt(t *testing.T, dsn string, nth int, args []string) bool {
	t.Helper()
	proxy := pgtest.Proxy(t, dsn)
	var seen atomic.Int64
	trap := proxy.Arm(pgproxy.Before(func(pgproxy.Statement) bool { return seen.Add(1) == int64(nth) }), pgproxy.Freeze)
	cmd := start(t, proxy.DSN(), args...)
	select {
	case <-trap.Fired():
	case <-cmd.over:
		if got := cmd.wait(); nth == 1 || got.code == 1 || got.code == 2 {
			t.Errorf("not interrupted at statement %d: %+v", nth, got)
		}
		return false
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	got := cmd.wait()
	if got.code != 130 || !strings.HasPrefix(got.stderr, "idem: interrupted") || strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("at statement %d: %+v", nth, got)
	}
	return true
}

// An interrupted eviction reports whether the record was deleted.
func TestSignal_NeverLeavesAnEvictionInDoubt(t *testing.T) {
	t.Parallel()
	for name, match := range map[string]pgproxy.Match{"before": pgproxy.Contains("DELETE"), "at COMMIT": pgproxy.IsCommit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			pool := pgtest.Open(t, dsn)
			const id = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10"
			_, err := pool.Exec(t.Context(), `INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
				VALUES ('s', 'k', '', $1, now(), now() + '1 h', 'completed')`, id)
			if err != nil {
				t.Fatal(err)
			}
			proxy := pgtest.Proxy(t, dsn)
			deleting := false
			trap := proxy.Arm(pgproxy.Before(func(s pgproxy.Statement) bool {
				deleting = deleting || strings.Contains(s.SQL, "DELETE")
				return deleting && match(s)
			}), pgproxy.Freeze)
			cmd := start(t, proxy.DSN(), "evict", "s", "k", "--execution", id, "--yes")
			held := <-trap.Fired()
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if name == "at COMMIT" {
				held.Conn.Resume()
			}
			got := cmd.wait()
			var records int
			if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM idem.records").Scan(&records); err != nil {
				t.Fatal(err)
			}
			switch {
			case got.code == 0 && records == 0 && strings.HasPrefix(got.stdout, "deleted"):
			case got.code == 143 && records == 1 && got.stdout == "":
			default:
				t.Errorf("%+v, and there are %d records", got, records)
			}
		})
	}
}
