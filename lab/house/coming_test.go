package house_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
	comingredis "github.com/idem-go/idem/lab/house/testdata/coming/redis"
	comingtable "github.com/idem-go/idem/lab/house/testdata/coming/table"
	"github.com/idem-go/idem/lab/pgtest"
)

// migration is a service that moves from its own table of keys to idem.
type migration struct {
	*testing.T
	pool       *pgxpool.Pool
	statements []string // the SQL of docs/choosing.md
}

func newMigration(t *testing.T) *migration {
	t.Helper()
	c := &migration{t, pgtest.New(t), blocks(documents(t)["docs/choosing.md"], "sql")}
	if len(c.statements) != 2 {
		t.Fatalf("docs/choosing.md has %d blocks of SQL, want 2", len(c.statements))
	}
	c.exec(c.statements[0])
	c.exec(`CREATE TABLE orders (tenant text, wanted bytea)`)
	return c
}

func (c *migration) exec(sql string, args ...any) {
	c.Helper()
	if _, err := c.pool.Exec(c.Context(), sql, args...); err != nil {
		c.Fatal(err)
	}
}

// insertOld inserts what the old code has stored for a key: its row and, for the status 201, its
// order. The body of the request is the key.
func (c *migration) insertOld(key string, status any) {
	c.Helper()
	c.exec(`INSERT INTO idempotency_keys (tenant, key, request, status, response)
		VALUES ('tenant-1', $1::text, sha256($1::text::bytea), $2, 'of the old code')`, key, status)
	if status == 201 {
		c.exec(`INSERT INTO orders VALUES ('tenant-1', $1::text::bytea)`, key)
	}
}

func (c *migration) place(key string) (idem.Result, error) {
	return comingtable.Place(c.Context(), c.pool, "tenant-1", key, []byte(key))
}

// placeNew is the code of step 3, which uses only the table of idem.
func (c *migration) placeNew(key string, body []byte) (idem.Result, error) {
	hash := idem.Hash(sha256.Sum256(body))
	return idem.Do(c.Context(), c.pool, idem.Scope("tenant-1", "POST /orders"), key, hash, func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Exec(c.Context(), `INSERT INTO orders VALUES ('tenant-1', $1)`, body)
		return idem.Response{Status: 201, Body: []byte("of step 3")}, err
	}, idem.WithTTL(7*24*time.Hour))
}

// advance moves the clock of both tables forward.
func (c *migration) advance(d time.Duration) {
	c.Helper()
	idemtest.Advance(c.T, c.pool, d)
	c.exec(`UPDATE idempotency_keys SET created_at = created_at - $1::interval`, d)
}

// wantReplay checks that the code of step 3 replays a response, and how many orders the key has.
func (c *migration) wantReplay(key string, status int, body string, orders int) {
	c.Helper()
	result, err := c.placeNew(key, []byte(key))
	if err != nil || !result.Replayed || result.Status != status || string(result.Body) != body {
		c.Errorf("%s: %+v, %v; want a replay of %d %q", key, result, err, status, body)
	}
	var n int
	if err := c.pool.QueryRow(c.Context(), `SELECT count(*) FROM orders WHERE wanted = $1::text::bytea`, key).Scan(&n); err != nil || n != orders {
		c.Errorf("%s has %d orders, %v; want %d", key, n, err, orders)
	}
}

// The test follows the steps of docs/choosing.md. While the service keeps a key, no step executes
// it again, whether the old or the new code has executed it.
func TestMigration_FromATableExecutesNoKeyTwice(t *testing.T) {
	t.Parallel()
	c := newMigration(t)
	for key, status := range map[string]any{"answered": 201, "refused": 402, "asked": 201, "in progress": nil} {
		c.insertOld(key, status)
	}
	for _, key := range []string{"asked", "new"} {
		if result, err := c.place(key); err != nil || result.Status != 201 {
			t.Fatal(key, result, err)
		}
	}
	if _, err := c.place("in progress"); !errors.Is(err, comingtable.ErrInProgress) {
		t.Errorf("a key that an old instance may be executing: %v", err)
	}
	c.advance(36 * time.Hour)
	if result, err := c.place("new"); err != nil || !result.Replayed {
		t.Errorf("in step 1, a day later: %+v, %v", result, err)
	}
	var wrong int
	err := c.pool.QueryRow(t.Context(), `SELECT count(*) FROM idempotency_keys
		WHERE key = 'new' AND (status, response) IS DISTINCT FROM (201, '{"placed":true}'::bytea)`).Scan(&wrong)
	if err != nil || wrong > 0 {
		t.Errorf("in step 1, the old row does not contain the response: %v", err)
	}
	scope := idem.Scope("tenant-1", "POST /orders")
	if want := strings.Split(c.statements[1], "'"); want[1]+want[3] != scope {
		t.Fatalf("idem.Scope returns %q", scope)
	}
	c.exec(c.statements[1])
	c.advance(4 * 24 * time.Hour)
	c.exec(`DROP TABLE idempotency_keys`)
	c.wantReplay("answered", 201, "of the old code", 1)
	c.wantReplay("asked", 201, "of the old code", 1)
	c.wantReplay("refused", 402, "of the old code", 0)
	c.wantReplay("new", 201, `{"placed":true}`, 1)
	if _, err := c.placeNew("answered", []byte("another request")); !errors.Is(err, idem.ErrMismatch) {
		t.Errorf("another request: %v", err)
	}
	if result, err := c.placeNew("later", []byte("later")); err != nil || result.Replayed || string(result.Body) != "of step 3" {
		t.Errorf("%+v, %v", result, err)
	}
}

// A record of step 1 that expires before the old row, or has expired already, is kept as long as
// the row.
func TestMigration_KeepsARecordAsLongAsTheRow(t *testing.T) {
	t.Parallel()
	c := newMigration(t)
	for _, key := range []string{"expires", "has expired"} {
		c.insertOld(key, 201)
		if _, err := c.place(key); err != nil {
			t.Fatal(err)
		}
	}
	c.exec(`UPDATE idem.records SET expires_at = now() + CASE key WHEN 'expires' THEN interval '1 hour' ELSE interval '-1 hour' END`)
	c.exec(c.statements[1])
	c.exec(`UPDATE idempotency_keys SET response = NULL`) // step 3 must not read the old table
	idemtest.Advance(t, c.pool, 48*time.Hour)
	c.wantReplay("expires", 201, "of the old code", 1)
	c.wantReplay("has expired", 201, "of the old code", 1)
}

// fakeRedis has the Redis commands that the code of the page needs.
type fakeRedis struct{ values sync.Map }

func (r *fakeRedis) SetNX(_ context.Context, key, value string, _ time.Duration) (bool, error) {
	_, taken := r.values.LoadOrStore(key, value)
	return !taken, nil
}

func (r *fakeRedis) Set(_ context.Context, key, value string, _ time.Duration) error {
	r.values.Store(key, value)
	return nil
}

func (r *fakeRedis) Get(_ context.Context, key string) (string, error) {
	value, _ := r.values.Load(key)
	text, _ := value.(string)
	return text, nil
}

// The new code never executes a key that an old instance has claimed in Redis.
func TestMigration_FromRedisExecutesNoKeyTwice(t *testing.T) {
	t.Parallel()
	pool, redis := pgtest.New(t), &fakeRedis{}
	if _, err := pool.Exec(t.Context(), `CREATE TABLE orders (tenant text, wanted bytea)`); err != nil {
		t.Fatal(err)
	}
	place := func(key string) (idem.Result, error) {
		return comingredis.Place(t.Context(), pool, redis, "t", key, []byte(key))
	}
	want := func(key, body string, replayed bool, orders int) {
		t.Helper()
		result, err := place(key)
		if err != nil || string(result.Body) != body || result.Replayed != replayed {
			t.Errorf("%s: %+v, %v", key, result, err)
		}
		var n int
		if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM orders WHERE wanted = $1::text::bytea`, key).Scan(&n); err != nil || n != orders {
			t.Errorf("%s has %d orders, %v; want %d", key, n, err, orders)
		}
	}
	want("new", `{"placed":true}`, false, 1)
	want("new", `{"placed":true}`, true, 1)
	if claimed, _ := redis.SetNX(t.Context(), "t:new", "in progress", 0); claimed {
		t.Error("an old instance can claim a key that the new code has executed")
	}

	redis.SetNX(t.Context(), "t:old", "in progress", 0) // an old instance executes the key, or died while it did
	if _, err := place("old"); !errors.Is(err, comingredis.ErrInProgress) {
		t.Errorf("a key that an old instance has claimed: %v", err)
	}
	redis.Set(t.Context(), "t:old", "by the old code", 0)
	want("old", "by the old code", false, 0)
	want("old", "by the old code", true, 0)

	// Redis has lost the claim of the new code, and an old instance has claimed the key.
	redis.values.Clear()
	redis.SetNX(t.Context(), "t:new", "in progress", 0)
	want("new", `{"placed":true}`, true, 1)

	// The new code has claimed the key and failed. The next call executes it.
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := comingredis.Place(canceled, pool, redis, "t", "failed", []byte("failed")); err == nil {
		t.Fatal("a call with a canceled context succeeded")
	}
	want("failed", `{"placed":true}`, false, 1)
}

// The script of the page makes pairs of up and down files that create the schema and remove it.
func TestMigrations_BecomePairsOfFiles(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	script := blocks(documents(t)["docs/choosing.md"], "sh")[0]
	script = strings.Replace(script, `$(go list -m -f '{{.Dir}}' github.com/idem-go/idem)`, root, 1)
	dir := t.TempDir()
	cmd := exec.Command("sh", "-eu", "-c", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pool := pgtest.Open(t, pgtest.EmptyDSN(t))
	run := func(suffix string, backwards bool) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		if slices.Sort(files); backwards {
			slices.Reverse(files)
		}
		for _, file := range files {
			sql, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := pool.Exec(t.Context(), string(sql), pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatalf("%s: %v", filepath.Base(file), err)
			}
		}
	}
	run(".up.sql", false)
	created := func(pgx.Tx) (idem.Response, error) { return idem.Response{Status: 201}, nil }
	result, err := idem.Do(t.Context(), pool, "s", "k", idem.HashBytes([]byte("r")), created)
	if err != nil || result.Status != 201 {
		t.Fatal(result, err)
	}
	run(".down.sql", true)
	var left int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_namespace WHERE nspname = 'idem'`).Scan(&left); err != nil || left != 0 {
		t.Errorf("the schema is still there: %v", err)
	}
}
