package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/pgbouncer"
	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/pgserver/child"
)

// bouncer is a PgBouncer in transaction mode.
type bouncer struct {
	process *child.Process
	dsn     string
}

// BouncerPrepares reports whether the installed PgBouncer supports prepared statements in
// transaction mode.
func BouncerPrepares() bool {
	program, err := optional.Find("pgbouncer")
	if err != nil {
		return false
	}
	yes, err := pgbouncer.Prepares(program)
	return yes && err == nil
}

// startBouncer starts a pooler in front of the server at address, with the credentials of dsn.
func startBouncer(ctx context.Context, dir, dsn, address string) (*bouncer, error) {
	program, err := optional.Find("pgbouncer")
	if err != nil {
		return nil, err
	}
	server, err := url.Parse(withAddress(dsn, address))
	if err != nil {
		return nil, err
	}
	listen, err := pgserver.FreePort()
	if err != nil {
		return nil, err
	}
	config, user, err := writeConfig(dir, server, listen)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "--quiet", config)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user, Setsid: true}
	process, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	b := &bouncer{process, fmt.Sprintf("postgres://%s@127.0.0.1:%d%s?sslmode=disable", server.User.Username(), listen, server.Path)}
	if err := b.awaitReady(ctx, listen); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// bouncerConfig makes PgBouncer retry a failed login soon (server_login_retry). With the default,
// clients wait for up to 15 s after the server has been unavailable.
const bouncerConfig = `[databases]
* = host=%s port=%s user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 1000
server_login_retry = 0.1
server_connect_timeout = 5
query_wait_timeout = 10
logfile = %s
`

// writeConfig writes the configuration to a new directory. If this process is root, the directory
// belongs to an unprivileged user, because PgBouncer refuses to run as root.
func writeConfig(dir string, server *url.URL, listen int) (path string, user *syscall.Credential, err error) {
	if user, err = pgserver.Unprivileged(os.Getuid()); err != nil {
		return "", nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", nil, err
	}
	password, _ := server.User.Password()
	path = filepath.Join(dir, "pgbouncer.ini")
	config := fmt.Sprintf(bouncerConfig, server.Hostname(), server.Port(), server.User.Username(), password, listen,
		filepath.Join(dir, "log"))
	if BouncerPrepares() {
		config += "max_prepared_statements = 100\n"
	}
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil || user == nil {
		return path, user, err
	}
	uid, gid := int(user.Uid), int(user.Gid)
	return path, user, errors.Join(os.Chown(dir, uid, gid), os.Chown(path, uid, gid))
}

func (b *bouncer) awaitReady(ctx context.Context, port int) error {
	for {
		conn, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
		if err == nil {
			return conn.Close()
		}
		select {
		case <-b.process.Done():
			return errors.New("pgbouncer ended while starting")
		case <-ctx.Done():
			return fmt.Errorf("pgbouncer: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (b *bouncer) close() { b.process.Kill() }
