package sidebyside

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/pgserver"
)

// settings are those of the server. All that makes a commit durable is as PostgreSQL has it by default, above all fsync,
// synchronous_commit and full_page_writes. What would fall into one contestant's turn and not into another's is put off:
// checkpoints and autovacuum. Each database is vacuumed before each turn instead.
var settings = []string{
	"shared_buffers=1GB", "max_connections=600", "max_wal_size=16GB", "checkpoint_timeout=1h", "autovacuum=off",
}

// Server is a Postgres of a benchmark's own.
type Server struct {
	*pgserver.Server
	Admin     *pgxpool.Pool // on a database that nobody measures
	Described string
	Flush     time.Duration // how long a COMMIT waits for the disk
	dir       string
	databases atomic.Int32
}

// StartServer starts one in a folder of its own in dir, or in that of temporary files. One that is not durable is for a run whose
// figures say nothing.
func StartServer(ctx context.Context, dir string, durable bool) (*Server, error) {
	with := slices.Clone(settings)
	if !durable {
		with = append(with, "fsync=off")
	}
	own, err := os.MkdirTemp(dir, "idem-bench-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: own}
	if err := s.start(ctx, with); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, with []string) (err error) {
	if err := os.Chmod(s.dir, 0o755); err != nil { // the server runs as another user
		return err
	}
	if s.Server, err = pgserver.Start(ctx, pgserver.Options{Dir: s.dir, Settings: with}); err != nil {
		return err
	}
	return s.prepare(ctx, with)
}

func (s *Server) prepare(ctx context.Context, with []string) (err error) {
	if s.Admin, err = pgxpool.New(ctx, s.DSN()); err != nil {
		return err
	}
	var version, commit string
	err = s.Admin.QueryRow(ctx, "select current_setting('server_version'), current_setting('synchronous_commit')").Scan(&version, &commit)
	if err != nil {
		return err
	}
	s.Described = fmt.Sprintf("PostgreSQL %s, synchronous_commit %s, `%s`", version, commit, strings.Join(with, "` `"))
	// Who reads the log can tell a commit that waited for the disk. Where that is not installed, this is left out.
	_, _ = s.Admin.Exec(ctx, "create extension if not exists pg_walinspect")
	s.Flush, err = s.measureFlush(ctx)
	return err
}

// Close ends the server, and nothing is left of it.
func (s *Server) Close() (err error) {
	if s.Admin != nil {
		s.Admin.Close()
	}
	if s.Server != nil {
		err = s.Server.Close()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// Database makes one with a schema, lets prepare add to it, unless that is nil, and returns its address.
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

// measureFlush measures how long a COMMIT waits for the disk: what it takes longer than without waiting, at the median.
func (s *Server) measureFlush(ctx context.Context) (time.Duration, error) {
	conn, err := pgx.Connect(ctx, s.DSN())
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "create table flushed (n int)"); err != nil {
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

// Execute runs statements on a connection of its own.
func Execute(ctx context.Context, dsn, sql string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return err
}

// Count asks a database how many there are of something.
func Count(ctx context.Context, dsn, query string) (n int, err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = conn.QueryRow(ctx, query).Scan(&n)
	return n, err
}
