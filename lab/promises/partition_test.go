package promises_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/purge"
)

func TestRecordsMayBePartitionedWhileCallsAreUnderWay(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	do := func(key string) (idem.Result, error) { return idemDo(ctx, l.pool, scope, key, hashA, l.charge(key)) }
	var n, failed atomic.Int64
	done := make(chan struct{})
	early := make(chan struct{}, 1)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if n.Add(1) == 100 {
					early <- struct{}{}
				}
				if _, err := do(fmt.Sprint("key-", n.Load()/2)); err != nil { // most keys are used twice, some concurrently
					failed.Add(1)
					t.Error(err)
					return
				}
			}
		})
	}
	await(t, "a hundred calls", early)
	if _, err := l.pool.Exec(ctx, operating(t, "PARTITION BY HASH"), pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Error(err)
	}
	after := n.Load()
	for n.Load() < after+200 && failed.Load() == 0 {
		if _, err := do(fmt.Sprint("key-", after/2)); err != nil {
			t.Error(err)
			break
		}
	}
	close(done)
	group.Wait()

	if parts := l.count("select count(distinct tableoid) from idem.records"); parts < 8 {
		t.Errorf("the records are in %d partitions", parts)
	}
	if twice := l.count("select count(*) from (select key from ledger group by key having count(*) > 1) _"); twice > 0 {
		t.Errorf("%d keys were executed twice", twice)
	}
	if odd := l.count("select count(*) from ledger full join idem.records using (key, execution_id) where ledger.id is null or records.key is null"); odd > 0 {
		t.Errorf("%d effects and records do not pair up", odd)
	}
	records := l.count("select count(*) from idem.records")
	l.expireAll()
	if rep, err := purge.Once(ctx, l.pool, purge.Options{Grace: time.Nanosecond}); err != nil || rep.Deleted != int64(records) {
		t.Errorf("purge: %+v, %v; want %d records deleted", rep, err, records)
	}
}
