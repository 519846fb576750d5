package migrations_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/migrations"
)

func TestUp_ConcurrentCallsMigrateOnce(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(pgtest.EmptyDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1 // whose connection is in use
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := migrations.Up(t.Context(), pool); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	conn.Release()
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Errorf("once more: %v", err)
	}
	if _, err := pool.Exec(t.Context(), "SELECT FROM idem.records"); err != nil {
		t.Error(err)
	}
}

// A password that is asked for with each connection, and a role that is taken after it.
func TestUp_ConnectsLikeThePool(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(pgtest.EmptyDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	real := config.ConnConfig.Database
	config.ConnConfig.Database = "not there"
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		c.Database = real
		return nil
	}
	var after sync.Once
	taken := false
	config.AfterConnect = func(context.Context, *pgx.Conn) error {
		after.Do(func() { taken = true })
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := migrations.Up(t.Context(), pool); err != nil || !taken {
		t.Errorf("%v; AfterConnect was called: %t", err, taken)
	}
}

// Services that share a database may have different search paths.
func TestUp_WhateverTheSearchPath(t *testing.T) {
	t.Parallel()
	dsn := pgtest.EmptyDSN(t)
	owner := pgtest.Open(t, dsn)
	for _, service := range []string{"orders", "payments"} {
		if _, err := owner.Exec(t.Context(), "CREATE SCHEMA "+service); err != nil {
			t.Fatal(err)
		}
		pool := pgtest.Open(t, dsn, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = service })
		if err := migrations.Up(t.Context(), pool); err != nil {
			t.Errorf("service %s: %v", service, err)
		}
	}
}

// A service that runs as a role which may not change the schema calls Up all the same, behind the one that has migrated.
func TestUp_AsARoleThatMayNotMigrate(t *testing.T) {
	t.Parallel()
	dsn := pgtest.EmptyDSN(t)
	owner := pgtest.Open(t, dsn)
	role := fmt.Sprintf("idem_test_up_%d", rand.Uint32())
	for _, sql := range []string{"CREATE ROLE " + role, "REVOKE CREATE ON SCHEMA public FROM PUBLIC"} {
		if _, err := owner.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if _, err := owner.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	pool := pgtest.Open(t, dsn, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["role"] = role })
	const advice = "a role needs CREATE on the database and on schema public"
	if err := migrations.Up(t.Context(), pool); err == nil || !strings.Contains(err.Error(), advice) {
		t.Errorf("on an empty database: %v", err)
	}
	if err := migrations.Up(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Up(t.Context(), pool); err == nil || !strings.Contains(err.Error(), "SELECT on public.idem_goose_version") {
		t.Errorf("without SELECT: %v", err)
	}
	if _, err := owner.Exec(t.Context(), "GRANT SELECT ON public.idem_goose_version TO "+role); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Errorf("with SELECT, and nothing to do: %v", err)
	}
}
