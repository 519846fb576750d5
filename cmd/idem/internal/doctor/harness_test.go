package doctor_test

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/cmd/idem/internal/doctor"
	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/pgtest"
)

// testDB is a database with a fault.
type testDB struct {
	t    *testing.T
	dsn  string
	pool *pgxpool.Pool
	opts doctor.Options
}

func newTestDB(t *testing.T) *testDB {
	t.Helper()
	return testDBAt(t, pgtest.DSN(t))
}

func testDBAt(t *testing.T, dsn string) *testDB {
	t.Helper()
	pool := pgtest.Open(t, dsn, func(c *pgxpool.Config) {
		c.MaxConns = 4
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	})
	return &testDB{t: t, dsn: dsn, pool: pool}
}

func (w *testDB) exec(sql ...string) {
	w.t.Helper()
	for _, statement := range sql {
		if _, err := w.pool.Exec(w.t.Context(), statement); err != nil {
			w.t.Fatalf("%s: %v", statement, err)
		}
	}
}

// session opens a further session, for a transaction that has to stay open.
func (w *testDB) session(sql ...string) *pgx.Conn {
	w.t.Helper()
	return sessionAt(w.t, w.dsn, sql...)
}

func sessionAt(t *testing.T, dsn string, sql ...string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	for _, statement := range sql {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return conn
}

// with returns the address with another role or other settings.
func (w *testDB) with(change func(*url.URL)) string {
	w.t.Helper()
	address, err := url.Parse(w.dsn)
	if err != nil {
		w.t.Fatal(err)
	}
	change(address)
	return address.String()
}

// findings returns the findings of one check.
func (w *testDB) findings(name string) []doctor.Finding {
	w.t.Helper()
	if !slices.Contains(doctor.Names(), name) {
		w.t.Fatalf("there is no check %q", name)
	}
	results, err := doctor.Only(w.t.Context(), w.pool, w.opts, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return results[0].Findings
}

// examine returns the results of all checks, and the findings of level Unknown.
func (w *testDB) examine() (results []doctor.Result, unknown []doctor.Finding) {
	w.t.Helper()
	results, err := doctor.Examine(w.t.Context(), w.pool, w.opts, func(string, int, int) {})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, result := range results {
		for _, f := range result.Findings {
			if f.Level == doctor.Unknown {
				unknown = append(unknown, f)
			}
		}
	}
	return results, unknown
}

// finds fails the test unless the check has a finding that contains all parts.
func (w *testDB) finds(name string, level doctor.Level, parts ...string) {
	w.t.Helper()
	for _, f := range w.findings(name) {
		if f.Level == level && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(f.What+"\n"+f.Remedy, part) }) {
			if f.Remedy == "" {
				w.t.Errorf("%s: no remedy", name)
			}
			return
		}
	}
	w.t.Errorf("%s: no %s with %q: %+v", name, level, parts, w.findings(name))
}

// eventuallyFinds is finds with retries, for statistics that the server updates with a delay.
func (w *testDB) eventuallyFinds(name string, level doctor.Level, parts ...string) {
	w.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		for _, f := range w.findings(name) {
			if f.Level == level {
				w.finds(name, level, parts...)
				return
			}
		}
	}
	w.t.Errorf("%s: no %s", name, level)
}

// findsNothing fails the test if the check has findings.
func (w *testDB) findsNothing(name string) {
	w.t.Helper()
	if found := w.findings(name); len(found) > 0 {
		w.t.Errorf("%s has findings on a healthy database: %+v", name, found)
	}
}

// startServer is a separate server, for faults that would disturb other tests.
func startServer(t *testing.T, settings ...string) *pgserver.Server {
	t.Helper()
	return pgtest.Server(t, append([]string{"max_connections=20"}, settings...)...)
}
