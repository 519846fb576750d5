//go:build unix

package pgtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/pgbouncer"
	"github.com/idem-go/idem/lab/pgserver"
)

// PgBouncer runs a PgBouncer in transaction mode in front of a database until the end of the test.
// It returns the address of the database through that PgBouncer. The test is skipped if PgBouncer
// is not installed.
func PgBouncer(t testing.TB, dsn string) string {
	t.Helper()
	program := optional.Program(t, "pgbouncer")
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	// The directory is not t.TempDir, which a PgBouncer that runs as another user could not enter.
	dir, err := os.MkdirTemp("", "idem-pgbouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	port, err := pgserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	password := ""
	if config.Password != "" {
		password = " password='" + config.Password + "'"
	}
	// auth_type = any accepts every client and connects to the server as the configured user.
	ini := fmt.Sprintf(`[databases]
%s = host=%s port=%d user=%s%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 200
`, config.Database, config.Host, config.Port, config.User, password, port)
	if prepares(t, program) {
		ini += "max_prepared_statements = 100\n"
	}
	path := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(path, []byte(ini), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-q", path)
	cmd.Dir = dir
	// PgBouncer refuses to run as root. For root, it runs as an unprivileged user.
	nobody, err := pgserver.Unprivileged(os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	if nobody != nil {
		if err := os.Chown(dir, int(nobody.Uid), int(nobody.Gid)); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody}
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	address := fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", config.User, port, config.Database)
	awaitServer(t, address)
	return address
}

// ModesBehindPgBouncer returns the query modes of pgx that work with the installed PgBouncer. They
// include pgx's default mode from PgBouncer 1.21 on.
func ModesBehindPgBouncer(t testing.TB) []pgx.QueryExecMode {
	t.Helper()
	modes := []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe}
	if prepares(t, optional.Program(t, "pgbouncer")) {
		modes = append(modes, pgx.QueryExecModeCacheStatement)
	}
	return modes
}

func prepares(t testing.TB, program string) bool {
	t.Helper()
	yes, err := pgbouncer.Prepares(program)
	if err != nil {
		t.Fatal(err)
	}
	return yes
}

// awaitServer returns when the address accepts connections, and fails the test after a minute.
func awaitServer(t testing.TB, address string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		conn, err := pgx.Connect(context.Background(), address+"&default_query_exec_mode=exec")
		if err == nil {
			conn.Close(context.Background())
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
