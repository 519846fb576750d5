package partition_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/partition"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
	"github.com/idem-go/idem/purge"
)

// fixture is a database with records and a ledger of their effects.
type fixture struct {
	t    *testing.T
	dsn  string
	pool *pgxpool.Pool
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	h := &fixture{t: t, dsn: pgtest.DSN(t)}
	h.pool = pgtest.Open(t, h.dsn)
	h.exec(`create table ledger (key text not null, execution_id uuid not null)`)
	return h
}

func (h *fixture) exec(sql string, args ...any) {
	h.t.Helper()
	if _, err := h.pool.Exec(context.Background(), sql, args...); err != nil {
		h.t.Fatal(sql, ": ", err)
	}
}

func (h *fixture) count(sql string, args ...any) (n int64) {
	h.t.Helper()
	if err := h.pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		h.t.Fatal(sql, ": ", err)
	}
	return n
}

// records creates records from before the partitioning. The first ones have expired.
func (h *fixture) records(n, expired int) {
	h.t.Helper()
	h.exec(`insert into idem.records (scope, key, hash, execution_id, created_at, expires_at, state, status, completed_at, header, body)
		select 'old', n::text, sha256(n::text::bytea), gen_random_uuid(), now(), now() + case when n <= $2 then -interval '2 h' else interval '1 h' end,
			'completed', 201, now(), '{"A":["b"]}', convert_to(repeat('x', n % 500), 'UTF8') from generate_series(1, $1::int) n`, n, expired)
}

func charge(ctx context.Context, pool *pgxpool.Pool, key string) (idem.Result, error) {
	return idem.Do(ctx, pool, "s", key, sha256.Sum256([]byte(key)), func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Exec(ctx, `insert into ledger select $1, execution_id from idem.records where scope = 's' and key = $1`, key)
		return idem.Response{Status: 201, Body: []byte(key)}, err
	})
}

func config(table string) partition.Config {
	return partition.Config{Table: table, Parts: 8, Share: 1, Patience: time.Minute, Blocks: 3}
}

// While Run partitions the table, clients call at every isolation level, a purge deletes, keys
// expire and become new, and a person evicts.
func TestPartition_OfRecordsDuringCalls(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			h := newFixture(t)
			h.records(4000, 1500)
			calling := pgtest.Open(t, h.dsn, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["default_transaction_isolation"] = level })
			ctx, stop := context.WithCancel(t.Context())
			var group sync.WaitGroup
			var calls, expired atomic.Int64
			begun := make(chan struct{})
			loop := func(once func(n int64) error) {
				group.Go(func() {
					for n := int64(0); ctx.Err() == nil; n++ {
						if err := once(n); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			for range 3 {
				loop(func(int64) error {
					n := calls.Add(1)
					if n == 50 {
						close(begun)
					}
					_, err := charge(context.Background(), calling, fmt.Sprint(n/2)) // each key twice, possibly at the same time
					return err
				})
			}
			loop(func(n int64) error { // an expired key is new again
				_, err := idem.Do(context.Background(), calling, "old", fmt.Sprint(1000+n%500), sha256.Sum256(nil), func(pgx.Tx) (idem.Response, error) {
					expired.Add(1)
					return idem.Response{Status: 202}, nil
				})
				if errors.Is(err, idem.ErrMismatch) { // the purge has not deleted it, and it is live
					err = nil
				}
				return err
			})
			copying := make(chan struct{})
			var evicted []string
			group.Go(func() { // a person evicts records
				<-copying
				for n := 2000; n <= 4000 && ctx.Err() == nil; n++ {
					tag, err := calling.Exec(context.Background(), `delete from idem.records where scope = 'old' and key = $1`, fmt.Sprint(n))
					if again(err) != nil {
						t.Error(err)
					} else if tag.RowsAffected() > 0 {
						evicted = append(evicted, fmt.Sprint(n))
					}
				}
			})
			loop(func(int64) error {
				_, err := purge.Once(context.Background(), calling, purge.Options{Grace: time.Hour, Share: 1, Pages: 2})
				return err
			})
			await(t, begun)
			c := config("records")
			c.Progress = func(p partition.Progress) {
				if p.Phase == "copies" && p.Done == 0 {
					close(copying)
				}
			}
			report, err := partition.Run(t.Context(), h.pool, c)
			if err != nil {
				t.Error(err)
			}
			after := calls.Load()
			for calls.Load() < after+100 && !t.Failed() {
				time.Sleep(time.Millisecond)
			}
			stop()
			group.Wait()
			t.Logf("%+v, %d calls, %d new again", report, calls.Load(), expired.Load())
			h.wantParts(8)
			if n := h.count("select count(*) from idem.records where scope = 'old' and key = any ($1)", evicted); n > 0 || len(evicted) < 10 {
				t.Errorf("%d of %d evicted records exist again", n, len(evicted))
			}
			if twice := h.count("select count(*) from (select key from ledger group by key having count(*) > 1) _"); twice > 0 {
				t.Errorf("%d keys were executed twice", twice)
			}
			if odd := h.count(`select count(*) from ledger full join (select * from idem.records where scope = 's') r using (key, execution_id) where ledger.key is null or r.key is null`); odd > 0 {
				t.Errorf("%d effects and records do not match", odd)
			}
			if left := h.count(`select count(*) from pg_class c join pg_namespace n on n.oid = relnamespace where nspname = 'idem' and (relname like '%parted%' or relname like '%whole%')`) +
				h.count(`select count(*) from pg_proc where proname like '%parted%'`) + h.count(`select count(*) from pg_trigger where tgname like 'idem_parted%'`); left > 0 {
				t.Errorf("%d objects are left", left)
			}
		})
	}
}

// again ignores errors after which a client retries.
func again(err error) error {
	if refused := (*pgconn.PgError)(nil); errors.As(err, &refused) && (refused.Code == "40001" || refused.Code == "40P01") {
		return nil
	}
	return err
}

func await(t *testing.T, done <-chan struct{}) {
	t.Helper()
	waiting.For(t, "something to happen", done)
}

func (h *fixture) wantParts(n int64) {
	h.t.Helper()
	if parts := h.count("select count(*) from pg_partition_tree('idem.records') where isleaf"); parts != n {
		h.t.Errorf("%d partitions", parts)
	}
}

// A row that is deleted while its block is copied must not come back. The deletion may come at any
// point and have an older snapshot.
func TestPartition_KeepsADeleteDuringTheCopy(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			h := newFixture(t)
			h.records(3000, 0)
			old, err := h.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level}) // a snapshot from before the copy
			if err != nil {
				t.Fatal(err)
			}
			defer old.Rollback(context.Background())
			if _, err := old.Exec(t.Context(), "select 1"); err != nil {
				t.Fatal(err)
			}
			c, deleted := config("records"), false
			c.Progress = func(p partition.Progress) {
				if p.Phase == "copies" && p.Done > 6 && !deleted {
					deleted = true
					_, err := old.Exec(context.Background(), "delete from idem.records where scope = 'old' and key in ('1', '2999')") // one row is copied, the other is not
					if err == nil {
						err = old.Commit(context.Background())
					}
					if again(err) != nil || err != nil && level == pgx.ReadCommitted {
						t.Error(err)
					}
					if err != nil { // the server asks for a retry
						h.exec("delete from idem.records where scope = 'old' and key in ('1', '2999')")
					}
				}
			}
			if _, err := partition.Run(t.Context(), h.pool, c); err != nil {
				t.Fatal(err)
			}
			if n := h.count("select count(*) from idem.records where key in ('1', '2999')"); n != 0 || !deleted {
				t.Errorf("%d deleted records exist again", n)
			}
			if n := h.count("select count(*) from idem.records"); n != 2998 {
				t.Errorf("%d records", n)
			}
		})
	}
}

func TestPartition_InterruptedRunResumesOrAborts(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.records(3000, 0)
	interrupted := func(at string) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := config("records")
		c.Progress = func(p partition.Progress) {
			if strings.HasPrefix(p.Phase, at) && p.Done > 3 {
				cancel()
			}
		}
		_, err := partition.Run(ctx, h.pool, c)
		return err
	}
	if err := interrupted("copies"); err == nil {
		t.Fatal("the command was not interrupted")
	}
	if _, err := charge(t.Context(), h.pool, "between"); err != nil {
		t.Error(err)
	}
	if begun, err := partition.Abort(t.Context(), h.pool, config("records")); err != nil || !begun {
		t.Fatal(begun, err)
	}
	if begun, err := partition.Abort(t.Context(), h.pool, config("records")); err != nil || begun {
		t.Error("there is nothing to abort, and ", begun, err)
	}
	if n := h.count("select count(*) from pg_class where relname like 'records\\_%' and relkind in ('r', 'p')") + h.count("select count(*) from pg_trigger where not tgisinternal and tgrelid = 'idem.records'::regclass"); n != 0 {
		t.Errorf("%d objects are left", n)
	}
	for _, at := range []string{"copies", "compares"} {
		if err := interrupted(at); err == nil {
			t.Fatal("the command was not interrupted")
		}
		h.exec("vacuum full idem.records") // moves the rows to other blocks
		if _, err := charge(t.Context(), h.pool, at); err != nil {
			t.Error(err)
		}
	}
	other := config("records")
	other.Parts = 4
	if _, err := partition.Run(t.Context(), h.pool, other); err == nil || !strings.Contains(err.Error(), "--parts 8") {
		t.Errorf("with another number of partitions: %v", err)
	}
	report, err := partition.Run(t.Context(), h.pool, config("records"))
	if err != nil || !report.Resumed || report.Compared != 2*3003 {
		t.Errorf("%+v, %v", report, err)
	}
	h.wantParts(8)
	if n := h.count("select count(*) from idem.records"); n != 3003 {
		t.Errorf("%d records", n)
	}
	if _, err := partition.Run(t.Context(), h.pool, config("records")); err == nil || !strings.Contains(err.Error(), "partitioned already") {
		t.Errorf("the second run: %v", err)
	}
}

// A session with triggers off writes to one table only. The comparison must find that before the
// swap.
func TestPartition_RefusesANewTableThatDiffers(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"a row less":    "insert into idem.records (scope, key, hash, execution_id, created_at, expires_at, state) values ('unseen', 'k', '', gen_random_uuid(), now(), now(), 'completed')",
		"another value": "update idem.records set status = 500 where key = '7'",
		"a row more":    "delete from idem.records where key = '7'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFixture(t)
			h.records(500, 0)
			c, done := config("records"), false
			c.Progress = func(p partition.Progress) {
				if p.Phase == "copies" && p.Done == p.Total && !done {
					done = true
					h.exec("begin; set local session_replication_role = replica; " + sql + "; commit")
				}
			}
			if _, err := partition.Run(t.Context(), h.pool, c); !errors.Is(err, partition.ErrDiffers) {
				t.Errorf("%v", err)
			}
			if h.count("select count(*) from pg_partitioned_table") != 1 || h.count("select count(*) from pg_class where oid = 'idem.records'::regclass and relkind = 'r'") != 1 {
				t.Error("the names were changed nevertheless")
			}
		})
	}
}

func TestPartition_ByTimeWouldAllowDuplicates(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for table, key := range map[string]string{"records": "scope, key", "inbox": "consumer, source, id"} {
		_, err := h.pool.Exec(t.Context(), fmt.Sprintf("create table by_time (like idem.%s, primary key (%s)) partition by range (expires_at)", table, key))
		if refused := (*pgconn.PgError)(nil); !errors.As(err, &refused) || refused.Code != "0A000" {
			t.Errorf("%s: %v", table, err)
		}
	}
}

func TestPartition_RefusesWhatACopyWouldLack(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for sql, want := range map[string][2]string{
		"alter table idem.records enable row level security":                                          {"row security", "alter table idem.records disable row level security"},
		"create view seen as select key from idem.records":                                            {"uses idem.records", "drop view seen"},
		"create table child (scope text, key text, foreign key (scope, key) references idem.records)": {"refers to", "drop table child"},
		"create publication p for table idem.records":                                                 {"publication p", "drop publication p"},
		"alter table idem.records set unlogged":                                                       {"not logged", "alter table idem.records set logged"},
		"create function f() returns trigger language plpgsql as 'begin return new; end'; create trigger mine before insert on idem.records for each row execute function f()": {
			"trigger mine", "drop function f() cascade"},
	} {
		h.exec(sql)
		var refused *partition.RefusedError
		if _, err := partition.Run(t.Context(), h.pool, config("records")); !errors.As(err, &refused) || !strings.Contains(err.Error(), want[0]) {
			t.Errorf("%s: %v", sql, err)
		}
		h.exec(want[1])
	}
	if n := h.count("select count(*) from pg_class where relname like '%parted%'"); n != 0 {
		t.Errorf("%d objects were created", n)
	}
}

// The new table has the settings, comments, indexes with their names, and privileges of the old
// one. Privileges include those of columns and of partitions.
func TestPartition_NewTableIsLikeTheOldOne(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	role := fmt.Sprintf("reader_%d", time.Now().UnixNano()) // roles are shared by all databases of a server
	h.exec("create role " + role)
	t.Cleanup(func() { h.exec("drop owned by " + role + "; drop role " + role) })
	for _, table := range []string{"records", "inbox"} {
		h.exec(fmt.Sprintf("grant insert on idem.%s to %s with grant option; grant select (expires_at), update (expires_at) on idem.%[1]s to %[2]s", table, role))
		looks := func() string {
			var s string
			err := h.pool.QueryRow(t.Context(), `select concat_ws(e'\n',
				obj_description(c.oid), (select string_agg(a.attname || ' ' || coalesce(col_description(c.oid, attnum), ''), e'\n' order by attnum) from pg_attribute a where attrelid = c.oid and attnum > 0),
				(select string_agg(i.relname || ' ' || pg_get_expr(indpred, c.oid), ', ' order by 1) from pg_index join pg_class i on i.oid = indexrelid where indrelid = c.oid),
				c.relacl, (select string_agg(attname || attacl::text, ' ') from pg_attribute where attrelid = c.oid))
				from pg_class c where oid = $1::regclass`, "idem."+table).Scan(&s)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		before := looks()
		if _, err := partition.Run(t.Context(), h.pool, config(table)); err != nil {
			t.Fatal(err)
		}
		if after := looks(); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		if n := h.count(`select count(*) from pg_partition_tree('idem.'||$1) join pg_class on oid = relid where isleaf and reloptions @> '{autovacuum_vacuum_threshold=1000}'
			and has_table_privilege($2, oid, 'INSERT WITH GRANT OPTION') and has_column_privilege($2, oid, 'expires_at', 'UPDATE')`, table, role); n != 8 {
			t.Errorf("%d of 8 partitions of %s have the settings and the privileges", n, table)
		}
	}
}

// A consumer works during the partitioning of its table, and every message has one effect.
func TestPartition_OfTheInboxDuringDeliveries(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	var n atomic.Int64
	begun := make(chan struct{})
	for range 3 {
		group.Go(func() {
			for ctx.Err() == nil {
				i := n.Add(1)
				if i == 50 {
					close(begun)
				}
				id := fmt.Sprint(i / 2)
				outcome, err := inbox.Handle(context.Background(), h.pool, "billing", inbox.Message{Source: "orders", ID: id, Payload: []byte(id)}, func(tx pgx.Tx) error {
					_, err := tx.Exec(context.Background(), `insert into ledger values ($1, gen_random_uuid())`, id)
					if i%14 == 0 {
						return errors.New("not today")
					}
					return err
				})
				if err != nil || outcome.State == inbox.Dead {
					t.Error(outcome, err)
					return
				}
			}
		})
	}
	await(t, begun)
	if _, err := partition.Run(t.Context(), h.pool, config("inbox")); err != nil {
		t.Error(err)
	}
	for after := n.Load(); n.Load() < after+100 && !t.Failed(); {
		time.Sleep(time.Millisecond)
	}
	stop()
	group.Wait()
	if odd := h.count(`select count(*) from (select key from ledger group by key having count(*) > 1) _`) +
		h.count(`select count(*) from ledger full join (select * from idem.inbox where state = 'handled') i on ledger.key = i.id where ledger.key is null or i.id is null`); odd > 0 {
		t.Errorf("%d messages and effects do not match", odd)
	}
}
