package promises_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

// Independent calls must not abort one another, however close their keys are. They have no more
// conflicts than plain transactions with the same statements.
func TestStrangersDoNotAbortEachOtherUnderSerializable(t *testing.T) {
	t.Parallel()
	const workers, calls = 8, 60
	serializable := pgx.TxOptions{IsoLevel: pgx.Serializable}
	for _, records := range []int{0, 20_000} {
		for _, writes := range []bool{false, true} {
			for _, joined := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d records/fn writes %v/joined %v", records, writes, joined), func(t *testing.T) {
					t.Parallel()
					ctx := context.Background()
					l := newLedger(t, maxConns(workers))
					l.seed(records, "0")
					if _, err := l.pool.Exec(ctx, "analyze idem.records"); err != nil {
						t.Fatal(err)
					}
					var next atomic.Int64
					var group sync.WaitGroup
					for range workers {
						group.Go(func() {
							for range calls {
								key := fmt.Sprintf("1-%012d", next.Add(1)) // ordered by time, like a UUIDv7
								fn := answer(ok)
								if writes {
									fn = l.charge(key)
								}
								var err error
								if joined {
									// The call waits at most 20 ms for any lock, including the lock
									// for extending the table. A slow disk is not a conflict.
									for again := true; again; again = errors.Is(err, idem.ErrInProgress) {
										err = pgx.BeginTxFunc(ctx, l.pool, serializable, func(tx pgx.Tx) error {
											_, err := idem.DoTx(ctx, tx, scope, key, hashA, fn)
											return err
										})
									}
								} else {
									_, err = idemDo(ctx, l.pool, scope, key, hashA, fn, idem.WithTxOptions(serializable), idem.WithRetries(0))
								}
								if err != nil {
									t.Errorf("%s: %v", key, err)
								}
							}
						})
					}
					group.Wait()
					if n := l.count("select count(*) from idem.records where key like '1-%'"); n != workers*calls {
						t.Errorf("%d records", n)
					}
				})
			}
		}
	}
}

// seed inserts n old records whose keys begin with prefix.
func (l *ledger) seed(n int, prefix string) {
	l.t.Helper()
	_, err := l.pool.Exec(context.Background(), `
		insert into idem.records (scope, key, hash, execution_id, created_at, expires_at, state, status, completed_at)
		select $1, $2 || '-' || i, '\x01', gen_random_uuid(), now(), now() + interval '1 day', 'completed', 200, now()
		from generate_series(1, $3::int) i`, scope, prefix, n)
	if err != nil {
		l.t.Fatal(err)
	}
}
