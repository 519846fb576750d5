package idemriver_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/adapter/idemriver"
	"github.com/idem-go/idem/operation"
)

// shopTables are the effects of an operation, a bank with idempotency keys, and a log of calls.
const shopTables = `
	CREATE TABLE done (operation text, step text, PRIMARY KEY (operation, step));
	CREATE TABLE bank (key text PRIMARY KEY, operation text, asked int NOT NULL DEFAULT 1);
	CREATE TABLE gate (shut bool);
	CREATE TABLE processes (name text PRIMARY KEY, killing timestamptz);
	CREATE TABLE calls (id bigint GENERATED ALWAYS AS IDENTITY, operation text, process text, entered timestamptz, gone timestamptz);`

// order reserves, charges and confirms. If its input begins with reject, it is rejected and
// releases.
func order(pool *pgxpool.Pool, process string) *idemriver.Definition[string] {
	write := func(op *operation.Op, step string) func(pgx.Tx) error {
		return func(tx pgx.Tx) error {
			_, err := tx.Exec(op.Context(), `INSERT INTO done (operation, step) VALUES ($1, $2)`, op.ID(), step)
			return err
		}
	}
	return idemriver.Define("order", func(op *operation.Op, in string) (idem.Response, error) {
		release := write(op, "release")
		err := operation.Exec(op, "reserve", write(op, "reserve"), operation.UndoTx(func(tx pgx.Tx, _ operation.None) error { return release(tx) }))
		if err != nil {
			return idem.Response{}, err
		}
		_, err = operation.Call(op, "charge", operation.Keyed(time.Hour), func(_ context.Context, key string) (string, error) {
			return charge(pool, op.ID(), process, key)
		})
		if err != nil {
			return idem.Response{}, err
		}
		if strings.HasPrefix(in, "reject") {
			return idem.Response{}, idem.Reject(idem.Response{Status: 402})
		}
		return created, operation.Exec(op, "confirm", write(op, "confirm"))
	})
}

// charge charges, logs the call, and blocks while the gate is shut.
func charge(pool *pgxpool.Pool, id, process, key string) (string, error) {
	ctx := context.Background()
	var call int64
	err := pool.QueryRow(ctx, `WITH charged AS (
			INSERT INTO bank (key, operation) VALUES ($3, $1) ON CONFLICT (key) DO UPDATE SET asked = bank.asked + 1)
		INSERT INTO calls (operation, process, entered) VALUES ($1, $2, clock_timestamp()) RETURNING id`, id, process, key).Scan(&call)
	if err != nil {
		return "", err
	}
	for shut := true; shut && err == nil; {
		time.Sleep(300 * time.Millisecond)
		err = pool.QueryRow(ctx, `SELECT count(*) > 0 FROM gate`).Scan(&shut)
	}
	_, gone := pool.Exec(ctx, `UPDATE calls SET gone = clock_timestamp() WHERE id = $1`, call)
	if err == nil {
		err = gone
	}
	return "charged", err
}

// wantEffects fails the test unless n operations have ended once, and none was run by two processes
// at once.
func wantEffects(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	for _, test := range []struct {
		what string
		sql  string
		want int
	}{
		{"operations that have ended", `SELECT count(*) FROM idem.operations WHERE state IN ('completed', 'failed')`, n},
		{"charges", `SELECT count(*) FROM bank`, n},
		{"operations that were charged", `SELECT count(DISTINCT operation) FROM bank`, n},
		{"completed but not confirmed", `SELECT count(*) FROM idem.operations o WHERE state = 'completed' AND NOT EXISTS (
			SELECT FROM done d WHERE d.operation = o.id::text AND step = 'confirm')`, 0},
		{"rejected but not released", `SELECT count(*) FROM idem.operations o WHERE state = 'failed' AND NOT EXISTS (
			SELECT FROM done d WHERE d.operation = o.id::text AND step = 'release')`, 0},
		{"at work at once", `SELECT count(*) FROM calls a JOIN calls b USING (operation) LEFT JOIN processes p ON p.name = a.process
			WHERE b.id <> a.id AND b.entered >= a.entered AND b.entered < coalesce(a.gone, p.killing, 'infinity')`, 0},
	} {
		if got := count(t, pool, test.sql); got != test.want {
			t.Errorf("%s: %d, want %d", test.what, got, test.want)
		}
	}
}
