package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/waiting"
)

// testenv prepares to run this program as testenv with local programs. Its environment contains
// nothing else that could select another server, such as the variables of the testenv that runs
// this test.
func testenv(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	optional.Program(t, "postgres")
	cmd := exec.Command(os.Args[0], append([]string{"as-testenv"}, args...)...)
	cmd.Env = append(cleanEnv(), "IDEM_TEST_POSTGRES=local")
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal, wherever the test runs
	return cmd
}

func cleanEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "IDEM_TEST_") || strings.HasPrefix(s, "DATABASE_URL=")
	})
}

// process is a running testenv whose command has reported.
type process struct {
	cmd    *exec.Cmd
	report report
}

func startTestenv(t *testing.T, env []string, flags ...string) *process {
	t.Helper()
	command := []string{os.Args[0], "as-command"}
	if slices.Contains(env, "THROUGH=shell") {
		command = []string{"sh", "-c", `trap : INT TERM HUP; "$0" as-command & wait $!; wait $!`, os.Args[0]}
	}
	cmd := testenv(t, env, append(flags, command...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	// The output is a file: processes that outlive a killed testenv would hold a pipe open.
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	proc := &process{cmd: cmd}
	t.Cleanup(func() { cmd.Process.Kill() })
	if err := json.NewDecoder(out).Decode(&proc.report); err != nil {
		why, _ := os.ReadFile(stderr.Name())
		t.Fatalf("the command did not report: %v\n%s", err, why)
	}
	return proc
}

func (p *process) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// wait returns the exit code. It fails the test if testenv does not exit soon.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	stuck := time.AfterFunc(patience, func() { p.cmd.Process.Kill() })
	p.cmd.Wait()
	if !stuck.Stop() {
		t.Errorf("testenv was still running after %v", patience)
	}
	return p.cmd.ProcessState.ExitCode()
}

// patience is the limit for operations that should take a moment.
const patience = waiting.Limit

// checkGone waits until both the command and the server have ended.
func (p *process) checkGone(t *testing.T) {
	t.Helper()
	eventually(t, "the command is gone", func() bool { return !alive(p.report.PID) })
	eventually(t, "the server is gone", func() bool { return !alive(p.report.Postmaster) })
	if conn, err := net.Dial("tcp", p.report.Address); err == nil {
		conn.Close()
		t.Errorf("%s still listens", p.report.Address)
	}
}

// report is what the command prints about its environment.
type report struct {
	PID, Postmaster int
	Address         string // of the server
	DataDir         string
	Template        string
	Migrated        bool
	MaxConnections  string
}

func (r report) runDir() string { return filepath.Dir(filepath.Dir(r.DataDir)) }

// exitSignalled is the exit code of the command after a signal has reached it.
const exitSignalled = 42

// reportAndWait is the main function of the command.
func reportAndWait() int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	r, err := inspectEnvironment(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	json.NewEncoder(os.Stdout).Encode(r)
	<-signals
	return exitSignalled
}

func inspectEnvironment(ctx context.Context) (r report, err error) {
	address, err := url.Parse(os.Getenv("IDEM_TEST_DATABASE_URL"))
	if err != nil {
		return r, err
	}
	conn, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return r, err
	}
	defer conn.Close(ctx)
	r = report{PID: os.Getpid(), Address: address.Host, Template: os.Getenv("IDEM_TEST_TEMPLATE")}
	err = conn.QueryRow(ctx, `
		SELECT split_part(pg_read_file('postmaster.pid'), E'\n', 1)::int, current_setting('data_directory'),
		       to_regclass('idem.records') IS NOT NULL, current_setting('max_connections')`).
		Scan(&r.Postmaster, &r.DataDir, &r.Migrated, &r.MaxConnections)
	return r, err
}

// runDirIn waits until a testenv with this TMPDIR, whose data is durable, has its directory there.
func runDirIn(t *testing.T, parent string) string {
	t.Helper()
	var found []string
	eventually(t, "testenv has a directory", func() bool {
		found, _ = filepath.Glob(filepath.Join(parent, runDirPrefix+"*"))
		return len(found) > 0
	})
	return found[0]
}

// alive reports whether a process is running. A zombie is not alive.
func alive(pid int) bool {
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		_, state, _ := strings.Cut(string(stat), ") ")
		return !strings.HasPrefix(state, "Z")
	}
	return syscall.Kill(pid, 0) == nil
}

// eventually polls until a condition holds.
var eventually = waiting.Until
