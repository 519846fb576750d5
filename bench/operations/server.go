package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/bench/operations/contestant"
	"github.com/idem-go/idem/internal/pgserver"
)

// settings are those of the server. All that makes a commit durable is as PostgreSQL has it by default, above all fsync,
// synchronous_commit and full_page_writes. What would fall into one contestant's turn and not into another's is put off:
// checkpoints and autovacuum. Each database is vacuumed before each turn instead.
var settings = []string{
	"shared_buffers=1GB", "max_connections=600", "max_wal_size=16GB", "checkpoint_timeout=1h", "autovacuum=off",
}

// server is a Postgres of our own.
type server struct {
	*pgserver.Server
	admin     *pgxpool.Pool // on a database that nobody measures
	described string
	flush     time.Duration
	databases atomic.Int32
}

func startServer(ctx context.Context, dir string, quick bool) (*server, error) {
	with := slices.Clone(settings)
	if quick {
		with = append(with, "fsync=off")
	}
	running, err := pgserver.Start(ctx, pgserver.Options{Dir: dir, Settings: with})
	if err != nil {
		return nil, err
	}
	s := &server{Server: running}
	if err := s.prepare(ctx, with); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *server) prepare(ctx context.Context, with []string) (err error) {
	if s.admin, err = pgxpool.New(ctx, s.DSN()); err != nil {
		return err
	}
	var version, commit string
	err = s.admin.QueryRow(ctx, "select current_setting('server_version'), current_setting('synchronous_commit')").Scan(&version, &commit)
	if err != nil {
		return err
	}
	s.described = fmt.Sprintf("PostgreSQL %s, synchronous_commit %s, `%s`", version, commit, strings.Join(with, "` `"))
	// Who reads the log can tell a commit that waited for the disk. Where that is not installed, this is left out.
	_, _ = s.admin.Exec(ctx, "create extension if not exists pg_walinspect")
	s.flush, err = s.measureFlush(ctx)
	return err
}

// Close ends the server.
func (s *server) Close() error {
	if s.admin != nil {
		s.admin.Close()
	}
	return s.Server.Close()
}

// database makes one for a contestant, and returns its address.
func (s *server) database(ctx context.Context, c contestant.Contestant) (dsn string, err error) {
	name := fmt.Sprintf("operations_%d", s.databases.Add(1))
	if _, err := s.admin.Exec(ctx, "create database "+name); err != nil {
		return "", err
	}
	dsn = strings.Replace(s.DSN(), "/postgres?", "/"+name+"?", 1)
	if err := execute(ctx, dsn, contestant.Schema); err != nil {
		return "", err
	}
	if c.Prepare == nil {
		return dsn, nil
	}
	if err := c.Prepare(ctx, dsn); err != nil {
		return "", fmt.Errorf("%s: %w", c.Name, err)
	}
	return dsn, nil
}

// measureFlush measures how long a COMMIT waits for the disk: what it takes longer than without waiting, at the median.
func (s *server) measureFlush(ctx context.Context) (time.Duration, error) {
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

// execute runs statements on a connection of its own.
func execute(ctx context.Context, dsn, sql string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return err
}
