package promises_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

// explain returns the plan of a statement that idem has prepared on the only connection of the
// pool.
func explain(t *testing.T, pool *pgxpool.Pool, statement string) string {
	t.Helper()
	rows, _ := pool.Query(context.Background(), "explain (costs off) execute "+statement, pgx.QueryExecModeSimpleProtocol)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return strings.Join(lines, "\n")
}

// stalePlans makes the server keep the first generic plan, which was made for a small table. No
// analyze replaces it.
func stalePlans(config *pgxpool.Config) {
	config.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
}

const explainLoad = `idem_load('\x01', '00000000-0000-0000-0000-000000000000', 'scope', 'key')`

// A plan from when the table was small scans the whole table. Only an analyze would replace such a
// plan.
func TestNoPlanOutlivesTheSizeOfTheTableItWasMadeFor(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	if _, err := l.pool.Exec(ctx, "alter table idem.records set (autovacuum_enabled = false)"); err != nil {
		t.Fatal(err)
	}
	l.seed(10, "small")
	if _, err := l.pool.Exec(ctx, "analyze idem.records"); err != nil {
		t.Fatal(err)
	}
	pool := pgtest.Open(t, l.pool.Config().ConnString(), maxConns(1), stalePlans)
	call := func() {
		t.Helper()
		if _, err := idemDo(ctx, pool, scope, "k", hashA, l.charge("k")); err != nil {
			t.Fatal(err)
		}
		waitIdle(t, pool)
	}
	call()
	call()
	preparedAt := func() (at time.Time) {
		t.Helper()
		if err := pool.QueryRow(ctx, "select prepare_time from pg_prepared_statements where name = 'idem_load'").Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	before := preparedAt()
	if plan := explain(t, pool, explainLoad); !strings.Contains(plan, "Seq Scan") {
		t.Fatalf("this test has no trap: %s", plan)
	}
	l.seed(50_000, "large")
	eventually(t, "the plan to be made again", func() bool { call(); return !preparedAt().Equal(before) })
	if plan := explain(t, pool, explainLoad); !strings.Contains(plan, "Index Scan using records_pkey") {
		t.Errorf("load: %s", plan)
	}
	l.wantOnce("k")
}

// The other statements of a first run cannot have a bad plan: they only reach the table through the
// check of the primary key.
func TestClaimAndCompleteHaveNoPlanThatCouldBeABadOne(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1), stalePlans)
	l.seed(10, "small")
	if _, err := l.pool.Exec(ctx, "analyze idem.records"); err != nil {
		t.Fatal(err)
	}
	for i, opts := range [][]idem.Option{nil, {idem.WithWait(0)}} {
		if _, err := idemDo(ctx, l.pool, scope, fmt.Sprint("k", i), hashA, l.charge("k"), opts...); err != nil {
			t.Fatal(err)
		}
	}
	const id = "'00000000-0000-0000-0000-000000000000'"
	for _, statement := range []string{
		`idem_claim('s', 'k', '\x01', ` + id + `, '1 hour', 1)`,
		`idem_claim_at_once('s', 'k', '\x01', ` + id + `, '1 hour', '1ms', 1, 1)`,
		`idem_complete('s', 'k', ` + id + `, 'completed', 1, NULL, NULL, NULL, '1 hour')`,
	} {
		if plan := explain(t, l.pool, statement); strings.Contains(plan, "Scan on records") || strings.Contains(plan, "Scan using") || !strings.Contains(plan, "records_pkey") {
			t.Errorf("%s: %s", statement, plan)
		}
	}
	n := l.count(`select count(*) from pg_prepared_statements where name like 'idem%'
		and name not in ('idem_begin', 'idem_commit', 'idem_claim', 'idem_claim_at_once', 'idem_load', 'idem_complete')`)
	if n != 0 {
		t.Errorf("%d prepared statements that this test does not know", n)
	}
}

// A statement that is not prepared has no stored plan.
func TestOnlyTheDefaultExecModeKeepsPlans(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, mode := range execModes {
		l := newLedger(t, withMode(mode), maxConns(1))
		for range 2 {
			if _, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k")); err != nil {
				t.Fatal(err)
			}
		}
		waitIdle(t, l.pool)
		if _, err := idem.Lookup(ctx, l.pool, scope, "k"); err != nil {
			t.Fatal(err)
		}
		n := l.count("select count(*) from pg_prepared_statements where name like 'idem%'")
		if keeps := mode == pgx.QueryExecModeCacheStatement; (n > 0) != keeps {
			t.Errorf("%v: %d plans are kept", mode, n)
		}
		if n := l.count("select count(*) from pg_prepared_statements where name like 'idem%' and (statement like '%-- name: Live%' or statement like '%-- name: Holder%')"); n > 0 {
			t.Errorf("%v: Lookup keeps a plan", mode)
		}
	}
}

// awaitDue waits until the only connection of the pool has a plan that is due to be made again.
func awaitDue(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	awaitTrue(t, pool, `select exists (select from pg_prepared_statements
		where name = 'idem_load' and prepare_time < clock_timestamp() - interval '2.5 s') from pg_sleep(0.05)`)
}

// A migration can lock the table while a plan is being made again. The pool must keep the
// connection then, and must not hand out a closed one.
func TestPlanThatIsRefusedLeavesASoundConnection(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	pool := pgtest.Open(t, l.pool.Config().ConnString(), maxConns(1), func(config *pgxpool.Config) {
		config.ConnConfig.RuntimeParams["lock_timeout"] = "50ms"
	})
	on := ledgerOn(t, pool)
	on.charged(ctx, "k")
	waitIdle(t, pool)
	awaitDue(t, pool)
	unlock := lockRecords(t, l.pool)
	if _, err := idemDo(ctx, pool, scope, "k", hashA, on.charge("k"), idem.WithWait(0)); err == nil {
		t.Fatal("the table is not locked")
	}
	for range 3 {
		waitIdle(t, pool)
		if _, err := pool.Exec(ctx, "select 1"); err != nil {
			t.Errorf("the next stranger: %v", err)
		}
	}
	unlock()
	on.wantFree("next")
	on.wantSameConnections(1)
}
