package idemtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// server creates and drops the databases of the tests on one Postgres server. Each trial gets a
// database of its own, so that trials can run at the same time and count only their own effects. A
// new database is a copy of a template, so that the migrations run once and not for each trial.
type server struct {
	config   *pgx.ConnConfig
	template func() (string, error) // returns the name of the template database; the first call creates the database
	stuck    atomic.Bool            // a DROP DATABASE has timed out
}

const databaseLimit = time.Minute

// dropLimit bounds a DROP DATABASE. The statement waits for every backend of the server, even for a
// backend that is blocked on a write to its client. After the first timeout, laterDropLimit bounds
// all later drops, because they probably wait for the same backend.
var (
	dropLimit      = 30 * time.Second
	laterDropLimit = time.Second
)

// create creates a database with idem's schema and returns its connection settings. A cleanup of t
// drops the database.
func (s *server) create(t testing.TB) *pgx.ConnConfig {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), databaseLimit)
	defer cancel()
	template, err := s.template()
	if err != nil {
		t.Fatalf("idemtest: create the template database: %v", err)
	}
	name := "idemtest_" + rand.Text()[:12]
	if err := s.clone(ctx, name, template); err != nil {
		t.Fatalf("idemtest: create a database: %v", err)
	}
	t.Cleanup(func() { s.drop(t, name) })
	return s.database(name)
}

// drop drops a database. If the server does not answer in time, drop does not fail the test. It
// only logs that the database may still exist.
func (s *server) drop(t testing.TB, name string) {
	t.Helper()
	limit := dropLimit
	if s.stuck.Load() {
		limit = laterDropLimit
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	switch err := runScripts(ctx, s.config, "DROP DATABASE "+quoted(name)+" WITH (FORCE)"); {
	case err != nil && ctx.Err() != nil:
		s.stuck.Store(true)
		t.Logf("idemtest: DROP DATABASE %s was not answered within %v and may not have happened: drop it when no backend of the server is stuck",
			name, limit)
	case err != nil:
		t.Errorf("idemtest: drop the database: %v", err)
	}
}

// clone creates a database called name as a copy of the database template.
func (s *server) clone(ctx context.Context, name, template string) error {
	return whileInUse(ctx, func() error {
		return runScripts(ctx, s.config, "CREATE DATABASE "+quoted(name)+" TEMPLATE "+quoted(template))
	})
}

// whileInUse calls try until Postgres no longer reports that the database is in use, or until ctx
// ends. Retrying is enough, because background processes of Postgres and other clones use a
// template only for a short time.
func whileInUse(ctx context.Context, try func() error) error {
	for {
		err := try()
		if !hasCode(err, "55006") { // the SQLSTATE object_in_use
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// makeTemplate returns the name of a database with the current schema, and creates the database if
// necessary. The name contains a hash of the schema, so that releases of idem with different
// migrations can share a server. The database is never dropped, so that later runs can use it.
func (s *server) makeTemplate() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), databaseLimit)
	defer cancel()
	hash := sha256.New()
	for _, script := range schema() {
		hash.Write([]byte(script))
	}
	name := fmt.Sprintf("idemtest_template_%x", hash.Sum(nil)[:6])
	conn, err := pgx.ConnectConfig(ctx, s.config)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	var there bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&there); err != nil || there {
		return name, err
	}
	return name, s.build(ctx, name)
}

// build creates the template under a temporary name and renames it when the schema is complete. A
// database with the final name therefore always has the complete schema. If another process has
// created the template meanwhile, build returns nil.
func (s *server) build(ctx context.Context, name string) error {
	draft := "idemtest_" + rand.Text()[:12]
	err := s.clone(ctx, draft, "template0")
	if err == nil {
		err = runScripts(ctx, s.database(draft), schema()...)
	}
	if err == nil {
		err = whileInUse(ctx, func() error {
			return runScripts(ctx, s.config, "ALTER DATABASE "+quoted(draft)+" RENAME TO "+quoted(name))
		})
	}
	if err == nil {
		return nil
	}
	runScripts(ctx, s.config, "DROP DATABASE IF EXISTS "+quoted(draft))
	// 42P04 is duplicate_database, and 23505 is a unique_violation in pg_database. Both mean that
	// another process created the template first.
	if hasCode(err, "42P04") || hasCode(err, "23505") {
		return nil
	}
	return err
}

// database returns the connection settings of the server for the database called name.
func (s *server) database(name string) *pgx.ConnConfig {
	config := s.config.Copy()
	config.Database = name
	return config
}

// runScripts opens a connection, runs the SQL scripts on it and closes it.
func runScripts(ctx context.Context, config *pgx.ConnConfig, scripts ...string) error {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, script := range scripts {
		if _, err := conn.PgConn().Exec(ctx, script).ReadAll(); err != nil {
			return err
		}
	}
	return nil
}

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }

func hasCode(err error, code string) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == code
}

func newServer(config *pgx.ConnConfig) *server {
	s := &server{config: config}
	s.template = sync.OnceValues(s.makeTemplate)
	return s
}
