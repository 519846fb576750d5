package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgserver"
)

// Spec describes the server that a scenario needs.
type Spec struct {
	Load     bool // wal_level=minimal: the scenario loads millions of records without writing WAL
	Volatile bool // fsync=off: only for test runs whose figures are not used
}

// settings returns the settings that differ from PostgreSQL's defaults. Everything that makes a
// commit durable keeps its default, above all fsync, synchronous_commit and full_page_writes. Only
// Volatile turns fsync off. Checkpoints are rare and autovacuum is off, because they would slow
// down the turn of one contestant and not the turns of others.
func (s Spec) settings() []string {
	settings := []string{
		fmt.Sprintf("shared_buffers=%dMB", min(max(memoryMB()/4, 128), 8192)), "max_connections=800", "max_wal_size=16GB",
		"checkpoint_timeout=1h", "autovacuum=off",
	}
	if s.Load {
		settings = append(settings, "wal_level=minimal", "max_wal_senders=0", "maintenance_work_mem=1GB")
	}
	if s.Volatile {
		settings = append(settings, "fsync=off")
	}
	return settings
}

// Server is a Postgres server that this process has started.
type Server struct {
	*pgserver.Server
	Spec      Spec
	Admin     *pgxpool.Pool // a pool on a database that no contestant uses
	Described string

	dir       string
	databases atomic.Int32
	mu        sync.Mutex
	redis     map[string]redisServer
}

// StartServer starts a Postgres server with its data in a new directory inside dir. If dir is
// empty, the new directory is inside the temporary directory.
func StartServer(ctx context.Context, dir string, spec Spec) (*Server, error) {
	own, err := os.MkdirTemp(dir, "idem-bench-")
	if err != nil {
		return nil, err
	}
	s := &Server{Spec: spec, dir: own, redis: map[string]redisServer{}}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// start starts the server and measures how long a COMMIT waits for the disk.
func (s *Server) start(ctx context.Context) (err error) {
	if err := os.Chmod(s.dir, 0o755); err != nil { // because another user may run the server
		return err
	}
	if s.Server, err = pgserver.Start(ctx, pgserver.Options{Dir: s.dir, Settings: s.Spec.settings()}); err != nil {
		return err
	}
	if s.Admin, err = pgxpool.New(ctx, s.DSN()); err != nil {
		return err
	}
	flush, err := s.Flush(ctx)
	if err != nil {
		return err
	}
	var version string
	if err := s.Admin.QueryRow(ctx, "select current_setting('server_version')").Scan(&version); err != nil {
		return err
	}
	s.Described = fmt.Sprintf("PostgreSQL %s, `%s`; a COMMIT waits %v for the disk", version, strings.Join(s.Spec.settings(), "` `"), flush.Round(time.Microsecond))
	// The method Logged counts commits with this extension. Without the extension, the number of
	// commits is unknown.
	_, _ = s.Admin.Exec(ctx, "create extension if not exists pg_walinspect")
	return nil
}

// Close stops the server and the Redis servers, and deletes the data.
func (s *Server) Close() (err error) {
	for _, r := range s.redis {
		r.process.Kill()
	}
	if s.Admin != nil {
		s.Admin.Close()
	}
	if s.Server != nil {
		err = s.Server.Close()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// Database creates a database, executes the SQL in schema on it, and returns its connection string.
// If prepare is not nil, Database also calls prepare.
func (s *Server) Database(ctx context.Context, schema string, prepare func(ctx context.Context, dsn string) error) (dsn string, err error) {
	name := fmt.Sprintf("bench_%d", s.databases.Add(1))
	if _, err := s.Admin.Exec(ctx, "create database "+name); err != nil {
		return "", err
	}
	dsn = strings.Replace(s.DSN(), "/postgres?", "/"+name+"?", 1)
	if err := Execute(ctx, dsn, schema); err != nil || prepare == nil {
		return dsn, err
	}
	return dsn, prepare(ctx, dsn)
}

// Flush measures how long a COMMIT waits for the disk. It returns the median time of an INSERT with
// synchronous_commit, minus the median time without.
func (s *Server) Flush(ctx context.Context) (time.Duration, error) {
	conn, err := pgx.Connect(ctx, s.DSN())
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "create table if not exists flushed (n int)"); err != nil {
		return 0, err
	}
	median := map[string]time.Duration{}
	for _, setting := range []string{"on", "off"} {
		if _, err := conn.Exec(ctx, "set synchronous_commit = "+setting); err != nil {
			return 0, err
		}
		all := make([]time.Duration, 101)
		for i := range all {
			begin := time.Now()
			if _, err := conn.Exec(ctx, "insert into flushed values (1)"); err != nil {
				return 0, err
			}
			all[i] = time.Since(begin)
		}
		slices.Sort(all)
		median[setting] = all[len(all)/2]
	}
	return median["on"] - median["off"], nil
}

// Logged calls work and returns how many commits and bytes the server has written to the WAL during
// this call. commits is negative if the number is unknown.
func (s *Server) Logged(ctx context.Context, work func() error) (commits, bytes float64, err error) {
	var begin, end string
	if err := s.Admin.QueryRow(ctx, "select pg_current_wal_insert_lsn()::text").Scan(&begin); err != nil {
		return 0, 0, err
	}
	if err := work(); err != nil {
		return 0, 0, err
	}
	err = s.Admin.QueryRow(ctx, "select lsn::text, pg_wal_lsn_diff(lsn, $1::text::pg_lsn)::float8 from pg_current_wal_insert_lsn() lsn", begin).
		Scan(&end, &bytes)
	if err != nil {
		return 0, 0, err
	}
	// pg_get_wal_records_info can read only WAL that has been flushed to disk. This commit flushes
	// the WAL.
	if _, err := s.Admin.Exec(ctx, "insert into flushed values (1)"); err != nil {
		return 0, 0, err
	}
	err = s.Admin.QueryRow(ctx, `select count(*)::float8 from pg_get_wal_records_info($1::text::pg_lsn, $2::text::pg_lsn)
		where resource_manager = 'Transaction' and record_type like 'COMMIT%'`, begin, end).Scan(&commits)
	if err != nil {
		return -1, bytes, nil
	}
	return commits, bytes, nil
}

// Cost returns the round trips, commits and WAL bytes per unit of work. work(n) does n units.
// Before it measures, Cost makes a checkpoint, executes the SQL in touch and does warm units. These
// writes are not measured, because the first write to a page after a checkpoint logs the whole
// page.
func (s *Server) Cost(ctx context.Context, proxy *pgproxy.Proxy, touch string, warm, n int, work func(n int) error) (result.Values, error) {
	if err := work(warm); err != nil {
		return nil, err
	}
	if _, err := s.Admin.Exec(ctx, "checkpoint"); err != nil {
		return nil, err
	}
	if err := Execute(ctx, proxy.DSN(), touch); err != nil {
		return nil, err
	}
	if err := work(warm); err != nil {
		return nil, err
	}
	proxy.ResetTally()
	var trips int
	commits, bytes, err := s.Logged(ctx, func() error {
		err := work(n)
		trips = proxy.Tally().Turns
		return err
	})
	each := func(total float64) float64 { return total / float64(n) }
	return result.Values{"trips": each(float64(trips)), "commits": each(commits), "wal": each(bytes)}, err
}

// Execute runs the statements in sql on a new connection.
func Execute(ctx context.Context, dsn, sql string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return err
}

// Reset truncates the given tables, a comma-separated list, and vacuums the database, so that every
// turn begins with the same state.
func Reset(ctx context.Context, dsn, tables string) error {
	if err := Execute(ctx, dsn, "truncate "+tables); err != nil {
		return err
	}
	return Execute(ctx, dsn, "vacuum analyze")
}

// Scan reads the only row of a query on a new connection.
func Scan(ctx context.Context, dsn, query string, into ...any) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return conn.QueryRow(ctx, query).Scan(into...)
}

// Pool opens a pool with the settings that all contestants share. The pool does not ping idle
// connections. Otherwise a contestant would need an additional ping whenever the other contestants
// took more than a second.
func Pool(ctx context.Context, dsn string, conns int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(conns)
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	return pgxpool.NewWithConfig(ctx, config)
}

// memoryMB returns the memory of the machine in MB, or 4096 if it is unknown.
func memoryMB() int {
	text, _ := os.ReadFile("/proc/meminfo")
	match := regexp.MustCompile(`MemTotal:\s+(\d+) kB`).FindSubmatch(text)
	if match == nil {
		return 4096
	}
	kB, _ := strconv.Atoi(string(match[1]))
	return kB >> 10
}
