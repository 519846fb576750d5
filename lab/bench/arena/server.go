// Package arena is where contestants meet: Postgres servers of our own on a disk that is flushed, near or far away, each
// contestant on a database of its own.
package arena

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgserver"
)

// Spec says what a server is to be like.
type Spec struct {
	Name     string
	MemoryGB int           // of the machine: a quarter is the server's
	Major    int           // 0: whatever is there
	Flush    time.Duration // that a flush to the disk takes longer
	Load     bool          // for millions of records: they are loaded without writing a log
}

// Settings are those of every server. All that makes a commit durable is as PostgreSQL has it by default, above all
// fsync, synchronous_commit and full_page_writes. What would fall into one contestant's turn and not into another's is
// put off until after the run: checkpoints and autovacuum.
func (s Spec) Settings() []string {
	settings := []string{
		fmt.Sprintf("shared_buffers=%dMB", min(max(s.MemoryGB*1024/4, 128), 8192)), "max_connections=800", "max_wal_size=16GB", "checkpoint_timeout=1h", "autovacuum=off",
	}
	if s.Load {
		settings = append(settings, "wal_level=minimal", "max_wal_senders=0", "maintenance_work_mem=1GB")
	}
	return settings
}

// Server is a running server.
type Server struct {
	Spec
	Version string
	From    string // where its programs are
	dsn     string
	dir     string
	env     []string // that makes its disk slow
	stop    func() error

	mu     sync.Mutex
	redis  map[string]*redisServer
	number int // of databases that were created
}

// ErrAbsent is in the error of StartServer if the machine has not what the spec asks for.
var ErrAbsent = errors.New("not available here")

// StartServer starts a server with its data below dir, and furnishes its template.
func StartServer(ctx context.Context, dir string, spec Spec) (*Server, error) {
	own := filepath.Join(dir, spec.Name)
	if err := os.MkdirAll(own, 0o755); err != nil {
		return nil, err
	}
	env, err := slowDisk(own, spec.Flush)
	if err != nil {
		return nil, fmt.Errorf("a slow disk is %w: %w", ErrAbsent, err)
	}
	s := &Server{Spec: spec, dir: own, env: env, redis: map[string]*redisServer{}}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	if err := s.prepare(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// start runs PostgreSQL's programs, or a container if they are of another version than is asked for.
func (s *Server) start(ctx context.Context) error {
	found, err := pgserver.Find("")
	if err != nil && s.Major == 0 {
		return err
	}
	at := slices.IndexFunc(found, func(i pgserver.Installation) bool { return s.Major == 0 || i.Major == s.Major })
	if at < 0 {
		return s.startContainer(ctx)
	}
	data := filepath.Join(s.dir, "postgres")
	if err := os.Mkdir(data, 0o755); err != nil {
		return err
	}
	server, err := pgserver.Start(ctx, pgserver.Options{Bin: found[at].Dir, Dir: data, Settings: s.Settings(), Env: s.env})
	if err != nil {
		return err
	}
	s.dsn, s.stop, s.From = server.DSN(), server.Close, found[at].Dir
	return nil
}

const template = "bench_template"

func (s *Server) prepare(ctx context.Context) error {
	if err := s.exec(ctx, "create database "+template); err != nil {
		return err
	}
	if err := Furnish(ctx, database(s.dsn, template)); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, s.dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return conn.QueryRow(ctx, "select current_setting('server_version')").Scan(&s.Version)
}

// Create makes a database with the template's schemas, and returns its name.
func (s *Server) Create(ctx context.Context) (name string, err error) {
	s.mu.Lock()
	s.number++
	name = fmt.Sprintf("bench_%d", s.number)
	s.mu.Unlock()
	return name, s.exec(ctx, "create database "+name+" template "+template)
}

// database leads an address of the server to another one of its databases.
func database(dsn, name string) string {
	return strings.Replace(dsn, "/postgres?", "/"+name+"?", 1)
}

func (s *Server) exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, s.dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql)
	return err
}

// Flush measures how long a COMMIT waits for the disk: what it takes longer than without waiting, at the median.
func (s *Server) Flush(ctx context.Context) (time.Duration, error) {
	conn, err := pgx.Connect(ctx, s.dsn)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "create table if not exists flushed (n int)"); err != nil {
		return 0, err
	}
	took := func(setting string) (time.Duration, error) {
		if _, err := conn.Exec(ctx, "set synchronous_commit = "+setting); err != nil {
			return 0, err
		}
		all := make([]time.Duration, 201)
		for i := range all {
			begin := time.Now()
			if _, err := conn.Exec(ctx, "insert into flushed values (1)"); err != nil {
				return 0, err
			}
			all[i] = time.Since(begin)
		}
		slices.Sort(all)
		return all[len(all)/2], nil
	}
	with, err := took("on")
	if err != nil {
		return 0, err
	}
	without, err := took("off")
	return with - without, err
}

// Close ends the server and what was started beside it, and removes its data.
func (s *Server) Close() error {
	for _, r := range s.redis {
		r.close()
	}
	var err error
	if s.stop != nil {
		err = s.stop()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
