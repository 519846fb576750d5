package main

import (
	"context"
	"io/fs"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/idem-go/idem/lab/pgtest"
)

func TestInstancesMayStartTogether(t *testing.T) {
	t.Parallel()
	dsn := pgtest.EmptyDSN(t)
	var starts sync.WaitGroup
	for range 3 {
		starts.Go(func() {
			pool, err := open(t.Context(), dsn)
			if err != nil {
				t.Error(err)
				return
			}
			pool.Close()
		})
	}
	starts.Wait()
	s := shopOn(t, pgtest.Open(t, dsn))
	wantStatus(t, s.order(), 201)
	s.wantOrders(1)
	for _, table := range []string{"orders_goose_version", "idem_goose_version"} {
		if n := s.count(`SELECT count(*) FROM (SELECT version_id FROM ` + table + ` GROUP BY 1 HAVING count(*) > 1) AS twice`); n != 0 {
			t.Errorf("%s: %d migrations were applied twice", table, n)
		}
	}
}

func TestMigrationsGoDownAndUpAgain(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	wantStatus(t, s.order(), 201)
	own, err := fs.Sub(ownMigrations, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDBFromPool(s.pool)
	defer db.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, own,
		goose.WithTableName("orders_goose_version"), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.DownTo(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	if n := s.count(`SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename NOT LIKE '%goose%'`); n != 0 {
		t.Errorf("%d tables left", n)
	}
	if n := s.count(`SELECT count(*) FROM idem.records`); n != 1 {
		t.Errorf("%d records of idem left, want 1: they are none of ours", n)
	}
	if err := migrate(context.Background(), s.pool); err != nil {
		t.Fatal(err)
	}
	s.wantOrders(0)
}
