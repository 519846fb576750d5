package main

import (
	"sync"
	"testing"

	"github.com/idem-go/idem/lab/pgtest"
)

func TestMigrate_InstancesMayStartTogether(t *testing.T) {
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
