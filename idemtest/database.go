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

// server is where databases are made.
type server struct {
	config   *pgx.ConnConfig
	template func() (string, error) // the name of the database that others are copies of
	stuck    atomic.Bool            // a DROP DATABASE was not answered in time
}

const databaseLimit = time.Minute

// The limits of a DROP DATABASE. It waits for every backend of the server, also for one that waits for its client to read. Once
// the server has not answered in time, later drops wait only briefly.
var (
	dropLimit      = 30 * time.Second
	laterDropLimit = time.Second
)

// create makes a database with idem's schema, and drops it when the test is over.
func (s *server) create(t testing.TB) *pgx.ConnConfig {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), databaseLimit)
	defer cancel()
	template, err := s.template()
	if err != nil {
		t.Fatalf("idemtest: a database with the schema: %v", err)
	}
	name := "idemtest_" + rand.Text()[:12]
	if err := s.clone(ctx, name, template); err != nil {
		t.Fatalf("idemtest: create a database: %v", err)
	}
	t.Cleanup(func() { s.drop(t, name) })
	return s.database(name)
}

// drop drops a database. If the server does not answer in time, the database stays, and the log of the test says so.
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
		t.Logf("idemtest: DROP DATABASE %s was not answered within %v and may not have happened: drop it when no backend of the server is stuck", name, limit)
	case err != nil:
		t.Errorf("idemtest: drop the database: %v", err)
	}
}

// clone makes a database out of another one.
func (s *server) clone(ctx context.Context, name, template string) error {
	return whileInUse(ctx, func() error {
		return runScripts(ctx, s.config, "CREATE DATABASE "+quoted(name)+" TEMPLATE "+quoted(template))
	})
}

// whileInUse tries again for as long as something of the server's has the database open. That passes.
func whileInUse(ctx context.Context, try func() error) error {
	for {
		err := try()
		if !hasCode(err, "55006") { // object_in_use
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// makeTemplate returns the name of a database that has the schema. Its name says which schema, and it stays for later runs.
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

// build makes the template under another name, so that it is there only when it is whole.
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
	if hasCode(err, "42P04") || hasCode(err, "23505") { // duplicate_database, or its unique index: another process was faster
		return nil
	}
	return err
}

func (s *server) database(name string) *pgx.ConnConfig {
	config := s.config.Copy()
	config.Database = name
	return config
}

// exec runs scripts on a connection of its own.
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
