package operation_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// What Tx, Call, Tx writes to the write-ahead log beyond two plain transactions with the same rows, far from a checkpoint. The server is
// this test's own, and nothing else writes.
func TestCost_WALOfTxCallTx(t *testing.T) {
	t.Parallel()
	const times, most = 200, 2100 // bytes
	s := shopOn(t, ownServer(t, "full_page_writes=off", "autovacuum=off").DSN(), maxConns(1))
	d := operation.Define("checkout", func(op *operation.Op, _ int) (idem.Response, error) {
		for _, step := range []struct {
			name string
			take stepOf
		}{{"reserve", localStep}, {"charge", outsideStep}, {"book", localStep}} {
			if err := step.take(op, step.name); err != nil {
				return idem.Response{}, err
			}
		}
		return created, nil
	})
	plain := func(step string) error {
		return pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `insert into done (step, operation_id) values ($1, gen_random_uuid())`, step)
			return err
		})
	}
	// Whatever happens on a busy machine, such as a run that begins again, only adds to the log: the smallest of three rounds counts.
	operations := math.MaxInt
	for round := range 3 {
		operations = min(operations, s.logged(t, times, func(n int) error {
			_, err := d.Do(t.Context(), s.pool, scope, fmt.Sprintf("order %d of round %d", n, round), hashA, 0)
			return err
		}))
	}
	floor := s.logged(t, times, func(int) error {
		if err := plain("reserve"); err != nil {
			return err
		}
		return plain("book")
	})
	t.Logf("%d bytes, and %d without the operation", operations, floor)
	if operations-floor > most {
		t.Errorf("an operation writes %d bytes beyond the %d of plain transactions, want %d at most", operations-floor, floor, most)
	}
}

// logged returns how many bytes one f writes to the write-ahead log.
func (s *shop) logged(t *testing.T, times int, f func(n int) error) int {
	t.Helper()
	var before int64
	position := `select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::int8`
	for n := range 2 * times {
		if n == times { // what comes first fills new pages
			before = int64(s.count(position))
		}
		if err := f(n); err != nil {
			t.Fatal(err)
		}
	}
	return int(int64(s.count(position))-before) / times
}
