package doctor_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/pgserver"
)

// startPgBouncer starts a pooler for a database and returns the address of the pooler.
func startPgBouncer(t *testing.T, dsn, mode string) string {
	t.Helper()
	program := optional.Program(t, "pgbouncer")
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "idem-pgbouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	port, err := pgserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	ini := filepath.Join(dir, "pgbouncer.ini")
	err = os.WriteFile(ini, fmt.Appendf(nil, `[databases]
%s = host=%s port=%d user=%s password='%s'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = %s
default_pool_size = 8
ignore_startup_parameters = extra_float_digits
`, config.Database, config.Host, config.Port, config.User, config.Password, port, mode), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-q", ini)
	cmd.Dir = dir
	if user, err := pgserver.Unprivileged(os.Getuid()); err != nil {
		t.Fatal(err)
	} else if user != nil {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	address := url.URL{
		Scheme: "postgres", User: url.User(config.User), Path: config.Database,
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), RawQuery: "sslmode=disable",
	}
	waitUntilItAnswers(t, address.String())
	return address.String()
}

func waitUntilItAnswers(t *testing.T, dsn string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := pgx.Connect(t.Context(), dsn)
		if err == nil {
			conn.Close(context.Background())
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
