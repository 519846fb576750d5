package faultproxy_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/idemtest/internal/faultproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

// through returns a connection by way of a proxy, and a pool that goes around it.
func through(t *testing.T) (*faultproxy.Proxy, *pgx.Conn, *pgxpool.Pool) {
	t.Helper()
	dsn := pgtest.DSN(t)
	proxy, conn := before(t, dsn)
	around := pgtest.Open(t, dsn)
	if _, err := around.Exec(t.Context(), "CREATE TABLE t (n int)"); err != nil {
		t.Fatal(err)
	}
	return proxy, conn, around
}

func before(t *testing.T, dsn string) (*faultproxy.Proxy, *pgx.Conn) {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := faultproxy.Start(&config.Config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	front := config.Copy()
	front.Host, front.Port, front.TLSConfig, front.Fallbacks = "127.0.0.1", proxy.Port(), nil, nil
	conn, err := pgx.ConnectConfig(t.Context(), front)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return proxy, conn
}

func rows(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM t").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

const insert = "INSERT INTO t VALUES (1)"

func TestCutComesBeforeTheStatement(t *testing.T) {
	t.Parallel()
	proxy, conn, around := through(t)
	proxy.Arm(faultproxy.Fault{Kind: faultproxy.Cut, At: 1})
	_, first := conn.Exec(t.Context(), insert)
	_, second := conn.Exec(t.Context(), insert)
	if shot := proxy.Disarm(); first != nil || second == nil || !shot.Fired || shot.SQL != insert {
		t.Errorf("%v, %v, %+v", first, second, shot)
	}
	if n := rows(t, around); n != 1 {
		t.Errorf("%d rows", n)
	}
}

func TestLostAnswerIsThatOfAStatementThatWasCarriedOut(t *testing.T) {
	t.Parallel()
	proxy, conn, around := through(t)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), insert); err != nil {
		t.Fatal(err)
	}
	proxy.Arm(faultproxy.Fault{Kind: faultproxy.Lose})
	err = tx.Commit(t.Context())
	if shot := proxy.Disarm(); err == nil || !shot.Commit {
		t.Errorf("%v, %+v", err, shot)
	}
	if n := rows(t, around); n != 1 {
		t.Errorf("%d rows", n)
	}
}

func TestConflictAbortsTheTransactionAlone(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		proxy, conn, around := through(t)
		proxy.Arm(faultproxy.Fault{Kind: faultproxy.Conflict})
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), insert, mode)
			return err
		})
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "40001" {
			t.Errorf("%v: %v", mode, err)
		}
		if _, err := conn.Exec(t.Context(), insert); err != nil { // the connection is as good as before
			t.Errorf("%v: %v", mode, err)
		}
		if n := rows(t, around); n != 1 {
			t.Errorf("%v: %d rows", mode, n)
		}
	}
}

func TestFrozenProcessIsDeadToTheServerAndHearsNothing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind faultproxy.Kind
		rows int
	}{{faultproxy.Freeze, 0}, {faultproxy.FreezeBehind, 1}} {
		proxy, conn, around := through(t)
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), insert+" RETURNING pg_advisory_xact_lock(7)"); err != nil {
			t.Fatal(err)
		}
		fired, heard := make(chan bool), make(chan error, 1)
		proxy.Arm(faultproxy.Fault{Kind: test.kind, Then: func() { close(fired) }})
		go func() { heard <- tx.Commit(context.Background()) }()
		<-fired
		if _, err := around.Exec(t.Context(), "SELECT pg_advisory_lock(7)"); err != nil { // once the transaction is over
			t.Fatal(err)
		}
		if n := rows(t, around); n != test.rows {
			t.Errorf("%d rows, want %d", n, test.rows)
		}
		select {
		case err := <-heard:
			t.Errorf("it heard %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		proxy.Thaw()
		if err := <-heard; err == nil {
			t.Error("it heard that all is well")
		}
	}
}

func TestCopyPassesAndIsLost(t *testing.T) {
	t.Parallel()
	proxy, conn, around := through(t)
	copyOne := func() error {
		_, err := conn.CopyFrom(t.Context(), pgx.Identifier{"t"}, []string{"n"}, pgx.CopyFromRows([][]any{{1}}))
		return err
	}
	if err := copyOne(); err != nil {
		t.Fatal(err)
	}
	proxy.Arm(faultproxy.Fault{Kind: faultproxy.Lose})
	if err := copyOne(); err == nil {
		t.Error("the answer was not lost")
	}
	if n := rows(t, around); n != 2 {
		t.Errorf("%d rows", n)
	}
}

func TestServerMayWantTLS(t *testing.T) {
	t.Parallel()
	proxy, conn := before(t, pgtest.TLS(t, pgtest.DSN(t)))
	if _, err := conn.Exec(t.Context(), "CREATE TABLE t (n int)"); err != nil {
		t.Fatal(err)
	}
	proxy.Arm(faultproxy.Fault{Kind: faultproxy.Lose})
	if _, err := conn.Exec(t.Context(), insert); err == nil {
		t.Error("the answer was not lost")
	}
}
