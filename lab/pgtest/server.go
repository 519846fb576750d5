package pgtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// server is the Postgres server that the environment names.
type server struct {
	url      *url.URL
	template string
}

// requireServer returns the server of the environment. Without one, it skips the test, or fails it
// if IDEM_TEST_REQUIRE is set.
func requireServer(t testing.TB) *server {
	t.Helper()
	address, template := os.Getenv("IDEM_TEST_DATABASE_URL"), os.Getenv("IDEM_TEST_TEMPLATE")
	if address == "" || template == "" {
		top, _, _ := strings.Cut(t.Name(), "/")
		hint := fmt.Sprintf("no database: run `make test`, or for this one `make test GOTEST='-run ^%s$'`", top)
		if os.Getenv("IDEM_TEST_REQUIRE") != "" {
			t.Fatal(hint + " (IDEM_TEST_REQUIRE forbids to skip)")
		}
		t.Skip(hint)
	}
	// The address must be a URL and not a list of keywords, because withDatabase replaces its path.
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatalf("pgtest: IDEM_TEST_DATABASE_URL has to be a URL: %v", err)
	}
	return &server{url: parsed, template: template}
}

// createLimit is how long a busy server may take to create or drop a database.
const createLimit = 5 * time.Minute

// createFor clones the template for the test and returns the address of the clone. The clone is
// dropped at the end of the test, unless the test has failed and IDEM_TEST_KEEP is set.
func (s *server) createFor(t testing.TB, template string) string {
	t.Helper()
	name := s.nameFor(t.Name())
	ctx, cancel := context.WithTimeout(context.Background(), createLimit)
	defer cancel()
	if err := s.create(ctx, name, template); err != nil {
		t.Fatalf("pgtest: create a database: %v", err)
	}
	address := withDatabase(s.url, name)
	t.Cleanup(func() {
		if t.Failed() && os.Getenv("IDEM_TEST_KEEP") != "" {
			t.Logf("pgtest: kept the database: psql '%s'", address)
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), createLimit)
		defer cancel()
		if err := s.exec(ctx, &dropping, "DROP DATABASE "+ident(name)+" WITH (FORCE)"); err != nil {
			t.Errorf("pgtest: drop the database: %v", err)
		}
	})
	return address
}

// create clones template. Postgres copies the files of the template, which is fast for a small
// database.
func (s *server) create(ctx context.Context, name, template string) error {
	return whileInUse(ctx, func() error {
		return s.with(ctx, &creating, func(conn *pgx.Conn) error {
			sql := "CREATE DATABASE " + ident(name) + " TEMPLATE " + ident(template)
			if !strings.HasPrefix(conn.PgConn().ParameterStatus("server_version"), "14") {
				sql += " STRATEGY FILE_COPY" // twice as fast as the default; the only strategy of version 14
			}
			_, err := conn.Exec(ctx, sql)
			return err
		})
	})
}

// whileInUse repeats clone while Postgres refuses to clone because a session is connected to the
// template. A background worker of Postgres itself connects to the template for short times.
func whileInUse(ctx context.Context, clone func() error) error {
	for {
		err := clone()
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != objectInUse {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20*time.Millisecond + rand.N(80*time.Millisecond)):
		}
	}
}

// objectInUse is the SQLSTATE of "source database is being accessed by other users".
const objectInUse = "55006"

func (s *server) exec(ctx context.Context, by *admin, sql string) error {
	return s.with(ctx, by, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

// admin is a connection to the server's own database. All tests of a process share it, because
// opening a connection costs more than most statements.
type admin struct {
	sync.Mutex
	conn *pgx.Conn
	to   string
}

// creating and dropping are two connections, because DROP DATABASE may wait for a test. It waits
// until every backend of the server has accepted a barrier. A backend cannot accept the barrier
// while it sends to a client that does not read. The test of that client may need a new database
// before it reads on.
var creating, dropping admin

// with passes the connection of the admin by to the function do. It opens the connection first if
// there is none, or if the open one leads to another server than s.
func (s *server) with(ctx context.Context, by *admin, do func(*pgx.Conn) error) error {
	by.Lock()
	defer by.Unlock()
	if to := s.url.String(); by.conn == nil || by.conn.IsClosed() || by.to != to {
		if by.conn != nil {
			_ = by.conn.Close(ctx)
		}
		conn, err := pgx.Connect(ctx, to)
		if err != nil {
			return err
		}
		by.conn, by.to = conn, to
	}
	return do(by.conn)
}

// nameFor returns the name of a test's database. The name shows the test in pg_stat_activity. It
// begins with the name of the template, so that testenv finds and drops the database if the test
// dies.
func (s *server) nameFor(test string) string {
	slug := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '_'
	}, strings.TrimPrefix(test, "Test"))
	const longest = 63 // maximum length of a name in Postgres, in bytes
	suffix := fmt.Sprintf("_%08x", rand.Uint32())
	// Postgres truncates longer names, which would cut off the random suffix.
	slug = slug[:min(len(slug), max(0, longest-len(s.template)-len("_")-len(suffix)))]
	return s.template + "_" + slug + suffix
}

func ident(name string) string { return pgx.Identifier{name}.Sanitize() }
