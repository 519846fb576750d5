package migrations_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/migrations"
)

func TestUpBringsAnyDatabaseToTheSchemaHoweverManyProcessesCallIt(t *testing.T) {
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
func TestUpConnectsAsThePoolDoes(t *testing.T) {
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
