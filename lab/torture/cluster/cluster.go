// Package cluster runs the PostgreSQL servers of a torture: a durable primary and, on request, a
// streaming standby and a PgBouncer. It uses the programs that are installed on this machine.
//
// The addresses of a cluster do not change. A server that is restarted keeps its port. Clients of a
// cluster with a standby connect to its door, a port that is forwarded to the current primary. So
// after a failover no connection leads to the old primary.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/pgserver/child"
)

// Options configure a cluster. The zero value is a single primary.
type Options struct {
	Data     string   // where the data directory of the first primary is created
	WAL      string   // where its write-ahead log is created; default: in Data
	Settings []string // name=value; they override the default settings
	Env      []string // NAME=value, for the servers
	Standby  Replication
	Bouncer  bool // start a PgBouncer in transaction mode
}

// settings are the settings of every server: durable commits, and a small memory.
var settings = []string{
	"fsync=on", "synchronous_commit=on", "full_page_writes=on", "wal_level=replica",
	"max_connections=200", "shared_buffers=64MB", "max_wal_size=256MB",
	"wal_sender_timeout=10s", "wal_receiver_timeout=10s", "wal_retrieve_retry_interval=100ms",
	// Workers cause SQL errors on purpose, and a log must not contain keys.
	"log_min_messages=log", "log_min_error_statement=panic", "log_checkpoints=off",
}

// Cluster is a running cluster. Its methods must not be called concurrently, except those that only
// return a value.
type Cluster struct {
	opts    Options
	dir     string
	guard   *child.Guard // removes dir
	made    int          // number of servers created so far
	fenced  []*pgserver.Server
	primary *pgserver.Server
	standby *pgserver.Server
	bouncer *bouncer
	door    *door
}

// Start starts the cluster and returns when it accepts connections.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	dir, err := os.MkdirTemp("", "idem-cluster-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{opts: opts, dir: dir}
	// If this process is killed, its servers need a moment to end. The guard retries until then.
	const script = `for _ in 1 2 3 4 5; do rm -rf --one-file-system "$0" 2>/dev/null && exit; sleep 1; done; exit 1`
	if c.guard, err = child.NewGuard(script, dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) (err error) {
	if err := os.Chmod(c.dir, 0o711); err != nil { // the servers may run as another user
		return err
	}
	opts, err := c.nextServer()
	if err != nil {
		return err
	}
	opts.Data, opts.WAL = c.opts.Data, c.opts.WAL
	if c.primary, err = pgserver.Start(ctx, opts); err != nil {
		return err
	}
	address := serverAddress(c.primary)
	if c.opts.Standby != NoStandby {
		if c.door, err = openDoor(address); err != nil {
			return err
		}
		address = c.door.address()
		if err := c.AddStandby(ctx); err != nil {
			return err
		}
	}
	if c.opts.Bouncer {
		c.bouncer, err = startBouncer(ctx, filepath.Join(c.dir, "pgbouncer"), c.primary.DSN(), address)
	}
	return err
}

// nextServer returns the options of a new server, with a directory of its own.
func (c *Cluster) nextServer() (pgserver.Options, error) {
	c.made++
	dir := filepath.Join(c.dir, fmt.Sprint("server", c.made))
	return pgserver.Options{
		Dir: dir, Env: c.opts.Env, Settings: append(append([]string(nil), settings...), c.opts.Settings...),
	}, os.Mkdir(dir, 0o700)
}

// DSN returns the DSN of the primary for clients. A failover does not change it.
func (c *Cluster) DSN() string {
	if c.door == nil {
		return c.primary.DSN()
	}
	return withAddress(c.primary.DSN(), c.door.address())
}

// BouncerDSN returns the DSN of PgBouncer, or "" if there is none. It needs no password.
func (c *Cluster) BouncerDSN() string {
	if c.bouncer == nil {
		return ""
	}
	return c.bouncer.dsn
}

// Primary returns the server that takes writes.
func (c *Cluster) Primary() *pgserver.Server { return c.primary }

// Standby returns the standby, or nil if there is none.
func (c *Cluster) Standby() *pgserver.Server { return c.standby }

// AwaitReady waits until the primary takes writes. After a crash this includes its recovery.
func (c *Cluster) AwaitReady(ctx context.Context) error {
	for {
		err := c.Writable(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, last because: %w", ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Writable returns nil if the primary takes writes.
func (c *Cluster) Writable(ctx context.Context) error {
	return c.Exec(ctx, "create temp table ready () on commit drop")
}

// Exec executes a statement on the primary. It uses a direct connection of its own, which the
// faults of client connections do not affect.
func (c *Cluster) Exec(ctx context.Context, sql string, args ...any) error {
	return c.Do(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql, args...)
		return err
	})
}

// Await waits until a query on the primary returns true.
func (c *Cluster) Await(ctx context.Context, sql string, args ...any) error {
	return c.Do(ctx, func(conn *pgx.Conn) error {
		for {
			var is bool
			if err := conn.QueryRow(ctx, sql, args...).Scan(&is); err != nil || is {
				return err
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

// Do calls the function with a direct connection to the primary, and closes the connection
// afterwards.
func (c *Cluster) Do(ctx context.Context, use func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, withApplication(c.primary.DSN()))
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		conn.Close(ctx)
	}()
	return use(conn)
}

// Application is the application_name of the cluster's own connections.
const Application = "torture"

// Close stops all servers and removes their files, except those at Options.Data.
func (c *Cluster) Close() error {
	var errs []error
	if c.bouncer != nil {
		c.bouncer.close()
	}
	if c.door != nil {
		errs = append(errs, c.door.listener.Close())
	}
	for _, server := range append(c.fenced, c.standby, c.primary) {
		if server != nil {
			errs = append(errs, server.Close())
		}
	}
	return errors.Join(append(errs, c.guard.Run())...)
}

func serverAddress(server *pgserver.Server) string { return fmt.Sprint("127.0.0.1:", server.Port()) }

func withAddress(dsn, address string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		panic(err) // the DSN is pgserver's own
	}
	u.Host = address
	return u.String()
}

func withApplication(dsn string) string { return dsn + "&application_name=" + Application }

// Replication selects whether there is a standby and whether a commit waits for it.
type Replication int

const (
	NoStandby Replication = iota
	// Asynchronous replication may lose commits that were acknowledged shortly before the primary
	// died.
	Asynchronous
	// Synchronous replication acknowledges a commit after the standby has written it to disk.
	Synchronous
)

// standbyName is the application name of the standby, for synchronous_standby_names.
const standbyName = "standby"

// AddStandby creates a standby and returns when it streams. It fails if there is one already.
func (c *Cluster) AddStandby(ctx context.Context) error {
	if c.standby != nil {
		return errors.New("there is a standby already")
	}
	opts, err := c.nextServer()
	if err != nil {
		return err
	}
	if c.standby, err = c.primary.Standby(ctx, standbyName, opts); err != nil {
		return fmt.Errorf("standby: %w", err)
	}
	if err := c.SetSynchronous(ctx, c.synchronous()); err != nil {
		return err
	}
	return c.awaitStreaming(ctx)
}

// synchronous returns the regular value of synchronous_standby_names.
func (c *Cluster) synchronous() string {
	if c.opts.Standby == Synchronous && c.standby != nil {
		return standbyName
	}
	return ""
}

// SetSynchronous sets synchronous_standby_names on the primary. With a name that no standby has,
// every COMMIT waits.
func (c *Cluster) SetSynchronous(ctx context.Context, names string) error {
	return c.Do(ctx, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "alter system set synchronous_standby_names = '"+names+"'"); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, "select pg_reload_conf()")
		return err
	})
}

// ResetSynchronous sets synchronous_standby_names to its regular value.
func (c *Cluster) ResetSynchronous(ctx context.Context) error {
	return c.SetSynchronous(ctx, c.synchronous())
}

func (c *Cluster) awaitStreaming(ctx context.Context) error {
	want := "async"
	if c.opts.Standby == Synchronous {
		want = "sync"
	}
	return c.Await(ctx, `select exists (select from pg_stat_replication
		where application_name = $1 and state = 'streaming' and sync_state = $2)`, standbyName, want)
}

// Isolate disconnects all clients and refuses new ones until Failover.
func (c *Cluster) Isolate() { c.door.lead("") }

// Failover promotes the standby and routes clients to it. The old primary must be dead. It is
// fenced: it is never started again and gets no connections. The cluster then has no standby until
// AddStandby.
func (c *Cluster) Failover(ctx context.Context) error {
	switch {
	case c.standby == nil:
		return errors.New("there is no standby to promote")
	case c.primary.Running():
		return errors.New("the primary is alive")
	}
	c.door.lead("")
	if err := c.standby.Promote(ctx); err != nil {
		return err
	}
	c.fenced = append(c.fenced, c.primary)
	c.primary, c.standby = c.standby, nil
	c.door.lead(serverAddress(c.primary))
	return nil
}
