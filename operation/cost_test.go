package operation_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// traffic counts the round trips and commits of a client.
type traffic struct {
	proxy   *pgproxy.Proxy
	mu      sync.Mutex
	commits int
}

func newTraffic(t *testing.T, s *shop) (*traffic, *shop) {
	t.Helper()
	c := &traffic{proxy: pgtest.Proxy(t, s.dsn)}
	stop := c.proxy.Observe(func(e pgproxy.Event) {
		if e.Stage == pgproxy.Answered && pgproxy.IsCommit(e.Statement) {
			c.mu.Lock()
			c.commits++
			c.mu.Unlock()
		}
	})
	t.Cleanup(stop)
	return c, s.through(c.proxy, maxConns(1))
}

// cost returns the round trips and commits of f. It takes the minimum of several tries, because a
// try may include a new plan or the ping of a presence.
func (c *traffic) cost(t *testing.T, f func(try int)) (trips, commits int) {
	t.Helper()
	for try := range 6 {
		c.mu.Lock()
		c.commits = 0
		c.mu.Unlock()
		c.proxy.ResetTally()
		f(try)
		n := c.proxy.Tally().Turns
		c.mu.Lock()
		if try > 0 && (trips == 0 || n < trips) { // the first try prepares the statements
			trips, commits = n, c.commits
		}
		c.mu.Unlock()
	}
	return trips, commits
}

// stepOf takes a step of some kind.
type stepOf func(op *operation.Op, name string) error

func localStep(op *operation.Op, name string) error {
	_, err := operation.Tx(op, name, write(name))
	return err
}

func outsideStep(op *operation.Op, name string) error {
	_, err := operation.Call(op, name, operation.Keyed(time.Hour), func(context.Context, string) (int, error) { return 7, nil })
	return err
}

func parallelStep(op *operation.Op, name string) error {
	calls := operation.Parallel(op)
	for i := range 3 {
		operation.Go(calls, fmt.Sprint(name, i), operation.Keyed(time.Hour), func(context.Context, string) (int, error) { return i, nil })
	}
	return calls.Wait()
}

func TestCost_OfSteps(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name          string
		steps         []stepOf
		commits       int
		plain         int // round trips of plain transactions around the same statements
		beyond        int // and how many more there may be
		wantOperation bool
	}{
		{"Tx is what Do is", []stepOf{localStep}, 1, 3, 0, false},
		{"Tx, Tx share a transaction", []stepOf{localStep, localStep}, 1, 4, 1, false},
		{"Call", []stepOf{outsideStep}, 2, 4, 0, true},
		{"Tx, Call, Tx", []stepOf{localStep, outsideStep, localStep}, 2, 6, 0, true},
		{"Tx, Call, Call, Tx", []stepOf{localStep, outsideStep, outsideStep, localStep}, 3, 8, 0, true},
		{"Tx, three parallel Calls, Tx", []stepOf{localStep, parallelStep, localStep}, 2, 6, 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			direct := newShop(t)
			c, s := newTraffic(t, direct)
			d := define(func(op *operation.Op) (err error) {
				for i, step := range test.steps {
					err = first(err, step(op, fmt.Sprint("step ", i)))
				}
				return err
			})
			trips, commits := c.cost(t, func(try int) {
				want(t, nil)(d.Do(t.Context(), s.pool, scope, fmt.Sprint("k", try), hashA, ""))
			})
			if commits != test.commits {
				t.Errorf("%d commits, want %d", commits, test.commits)
			}
			if trips > test.plain+test.beyond {
				t.Errorf("%d round trips, want %d and at most %d more", trips, test.plain, test.beyond)
			}
			if n := direct.count(`select count(*) from idem.operations`); n > 0 != test.wantOperation {
				t.Errorf("%d operations are recorded", n)
			}
		})
	}
}

// A call holds no connection, so 20 operations on two connections make their calls at the same
// time.
func TestCall_HoldsNoConnection(t *testing.T) {
	t.Parallel()
	const operations = 20
	s := newShop(t, maxConns(2))
	var together sync.WaitGroup
	together.Add(operations)
	d := define(func(op *operation.Op) error {
		before := localStep(op, "before")
		_, err := operation.Call(op, "call", operation.Keyed(time.Hour), func(context.Context, string) (int, error) {
			together.Done()
			together.Wait() // until every operation is in its call
			return 0, nil
		})
		return first(before, err, localStep(op, "after"))
	})
	s.doAll(t, d, operations)
	s.wantCount(2*operations, `select count(*) from done`)
}

// doAll calls Do with n keys at the same time, each of which is the input, too.
func (s *shop) doAll(t *testing.T, d *operation.Definition[string], n int) {
	t.Helper()
	errs := make(chan error, n)
	for i := range n {
		go func() {
			key := fmt.Sprint("k", i)
			_, err := d.Do(t.Context(), s.pool, scope, key, hashA, key)
			errs <- err
		}()
	}
	for range n {
		must(t, await(t, "an operation to end", errs))
	}
}

// Measures the write-ahead log of Tx, Call, Tx beyond that of two plain transactions with the same
// rows, without full-page writes. Splits of index pages are left out, because their number in a few
// hundred operations depends on the random ids. They add about 180 bytes.
func TestCost_WALOfTxCallTx(t *testing.T) {
	t.Parallel()
	const limit = 1940 // bytes
	server := ownServer(t, "full_page_writes=off", "autovacuum=off")
	s := shopOn(t, server.DSN(), maxConns(1))
	d := define(func(op *operation.Op) error {
		return errors.Join(localStep(op, "reserve"), outsideStep(op, "charge"), localStep(op, "book"))
	})
	operations := s.logged(t, server, func(n int) error {
		_, err := d.Do(t.Context(), s.pool, scope, fmt.Sprint("order ", n), hashA, "")
		return err
	})
	plain := func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `insert into done (step, operation_id) values ('reserve', gen_random_uuid())`)
		return err
	}
	floor := s.logged(t, server, func(int) error {
		return first(pgx.BeginFunc(t.Context(), s.pool, plain), pgx.BeginFunc(t.Context(), s.pool, plain))
	})
	t.Logf("%d bytes, and %d without the operation", operations, floor)
	if operations-floor > limit {
		t.Errorf("an operation writes %d bytes beyond the %d of plain transactions, the limit is %d", operations-floor, floor, limit)
	}
}

// logged returns how many bytes one f writes to the write-ahead log, without splits of index pages
// and without periodic records of the server.
func (s *shop) logged(t *testing.T, server *pgserver.Server, f func(n int) error) (size int) {
	t.Helper()
	const times = 200
	var from string
	for n := range 2 * times {
		if n == times { // what comes first fills new pages
			from = s.text(`select pg_current_wal_insert_lsn()::text`)
		}
		must(t, f(n))
	}
	to := s.text(`select pg_current_wal_insert_lsn()::text`)
	s.exec(`select pg_switch_wal()`)
	out, err := exec.Command(server.Bin()+"/pg_waldump", "--stats=record", "-p", server.Data()+"/pg_wal", "-s", from, "-e", to).Output()
	must(t, err)
	for _, row := range regexp.MustCompile(`(?m)^(\S+) +\d+ \( *[\d.]+\) +(\d+) `).FindAllStringSubmatch(string(out), -1) {
		if !regexp.MustCompile(`^(Btree/(SPLIT|NEWROOT|INSERT_UPPER)|Standby/|XLOG/)`).MatchString(row[1]) {
			n, err := strconv.Atoi(row[2])
			must(t, err)
			size += n
		}
	}
	return size / times
}
