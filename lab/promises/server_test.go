package promises_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/txn"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/schema"
	"github.com/idem-go/idem/lab/waiting"
	"github.com/idem-go/idem/purge"
)

// operating returns the SQL block of docs/operate.md that contains what.
func operating(t *testing.T, what string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operate.md")
	noError(t, err)
	for _, block := range strings.Split(string(text), "\n```sql\n")[1:] {
		if sql, _, _ := strings.Cut(block, "\n```"); strings.Contains(sql, what) {
			return sql + "\n"
		}
	}
	t.Fatalf("docs/operate.md has no SQL with %q", what)
	return ""
}

// as returns an address of the database at which the client has the given role.
func as(dsn, role string) string {
	return dsn + "&options=" + url.QueryEscape("-crole="+role)
}

func TestRoles_OfTheDocsDoTheirPartAndNoMore(t *testing.T) {
	t.Parallel()
	dsn := pgtest.EmptyDSN(t)
	admin := pgtest.Open(t, dsn)
	suffix := fmt.Sprintf("_%d", rand.Uint32()) // roles belong to the whole server, and this test may run twice at once
	own := strings.NewReplacer("idem_migrate", "idem_migrate"+suffix, "idem_call", "idem_call"+suffix,
		"idem_purge", "idem_purge"+suffix, "DATABASE shop", "DATABASE "+pgx.Identifier{admin.Config().ConnConfig.Database}.Sanitize())
	exec := func(pool *pgxpool.Pool, sql string) {
		t.Helper()
		noError(t, errOf(pool.Exec(ctx, own.Replace(sql), pgx.QueryExecModeSimpleProtocol)))
	}
	t.Cleanup(func() {
		exec(admin, "drop owned by idem_migrate, idem_call, idem_purge cascade; drop role idem_migrate, idem_call, idem_purge")
	})
	exec(admin, operating(t, "CREATE ROLE idem_call"))
	noError(t, schema.UpAt(ctx, as(dsn, own.Replace("idem_migrate"))))
	exec(pgtest.Open(t, as(dsn, own.Replace("idem_migrate"))), operating(t, "GRANT DELETE"))
	calling, purging := pgtest.Open(t, as(dsn, own.Replace("idem_call"))), pgtest.Open(t, as(dsn, own.Replace("idem_purge")))

	for _, replayed := range []bool{false, true} {
		wantDone(t, replayed, "as idem_call")(idemDo(ctx, calling, scope, "key", hashA, answer(ok)))
	}
	if _, err := idemDo(ctx, purging, scope, "key", hashA, neverCalled(t)); err == nil || !containsAll(err.Error(), "42501", "the role needs", "idem.records") {
		t.Errorf("as idem_purge: %v; want an error that names the grants", err)
	}
	if entry, err := idem.Lookup(ctx, calling, scope, "key"); err != nil || entry.State != idem.StateCompleted {
		t.Errorf("Lookup as idem_call: %+v, %v", entry, err)
	}
	execute(t, admin, "update idem.records set expires_at = now() - interval '2 hours'")
	if rep, err := purge.Once(ctx, purging, purge.Options{}); err != nil || rep.Deleted != 1 {
		t.Errorf("purge as idem_purge: %+v, %v; want one record deleted", rep, err)
	}
	migrating := pgtest.Open(t, as(dsn, own.Replace("idem_migrate")))
	for _, what := range []string{"PARTITION BY HASH", "GRANT DELETE", "isleaf"} {
		exec(migrating, operating(t, what))
	}
	executed(t, "partitioned, as idem_call")(idemDo(ctx, calling, scope, "key of a partition", hashA, answer(ok)))
	execute(t, admin, "update idem.records set expires_at = now() - interval '2 hours'")
	if rep, err := purge.Once(ctx, purging, purge.Options{}); err != nil || rep.Deleted != 1 {
		t.Errorf("partitioned, purge as idem_purge: %+v, %v; want one record deleted", rep, err)
	}
	const denied = "42501"
	for role, forbidden := range map[*pgxpool.Pool][]string{
		calling: {"delete from idem.records", "truncate idem.records", "select * from idem.sweeps", "drop table idem.records", "create table idem.mine ()"},
		purging: {"select key from idem.records", "select body from idem.records", "insert into idem.records (scope) values ('')",
			"update idem.records set body = ''", "truncate idem.records", "create table idem.mine ()"},
	} {
		for _, sql := range forbidden {
			if _, err := role.Exec(ctx, sql); !txn.HasCode(err, denied) {
				t.Errorf("%s: %v; want it refused", sql, err)
			}
		}
	}
}

func TestRecords_MayBePartitionedDuringCalls(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	var n, failed atomic.Int64
	done, early := make(chan struct{}), make(chan struct{})
	group := storm(4, func(int) {
		for {
			select {
			case <-done:
				return
			default:
			}
			if n.Add(1) == 100 {
				close(early)
			}
			key := fmt.Sprint("key-", n.Load()/2) // most keys are used twice, some concurrently
			if _, err := idemDo(ctx, l.pool, scope, key, hashA, l.charge(key), idem.WithWait(waiting.Limit)); err != nil {
				failed.Add(1)
				t.Error(err)
				return
			}
		}
	})
	await(t, "a hundred calls", early)
	execute(t, l.pool, operating(t, "PARTITION BY HASH"))
	after := n.Load()
	waiting.Until(t, "more calls", func() bool { return n.Load() > after+200 || failed.Load() > 0 })
	close(done)
	group()
	if parts := l.count("select count(distinct tableoid) from idem.records"); parts < 8 {
		t.Errorf("the records are in %d partitions", parts)
	}
	l.wantCount("keys that were executed twice", 0, "select count(*) from (select key from ledger group by key having count(*) > 1) _")
	l.wantCount("effects and records that do not pair up", 0,
		"select count(*) from ledger full join idem.records using (key, execution_id) where ledger.id is null or records.key is null")
	records := l.count("select count(*) from idem.records")
	l.expireAll()
	if rep, err := purge.Once(ctx, l.pool, purge.Options{Grace: time.Nanosecond}); err != nil || rep.Deleted != int64(records) {
		t.Errorf("purge: %+v, %v; want %d records deleted", rep, err, records)
	}
}

// Independent calls must not abort one another, however close their keys are. They have no more
// conflicts than plain transactions with the same statements.
func TestDo_SerializableStrangersDoNotAbortEachOther(t *testing.T) {
	t.Parallel()
	const workers, calls = 8, 40
	serializable := pgx.TxOptions{IsoLevel: pgx.Serializable}
	for records, joined := range map[int]bool{0: true, 20_000: false} {
		t.Run(fmt.Sprintf("%d records, joined %v", records, joined), func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, maxConns(workers))
			l.seed(records, "0")
			execute(t, l.pool, "analyze idem.records")
			var next atomic.Int64
			storm(workers, func(int) {
				for range calls {
					key := fmt.Sprintf("1-%012d", next.Add(1)) // ordered by time, like a UUIDv7
					var err error
					if joined {
						// The call waits at most 20 ms for any lock, including the lock
						// for extending the table. A slow disk is not a conflict.
						for again := true; again; again = errors.Is(err, idem.ErrInProgress) {
							err = pgx.BeginTxFunc(ctx, l.pool, serializable, func(tx pgx.Tx) error {
								return errOf(idem.DoTx(ctx, tx, scope, key, hashA, l.charge(key)))
							})
						}
					} else {
						_, err = idemDo(ctx, l.pool, scope, key, hashA, l.charge(key), idem.WithTxOptions(serializable), idem.WithRetries(0))
					}
					wantIs(t, err, nil, key)
				}
			})()
			l.wantCount("records", workers*calls, "select count(*) from idem.records where key like '1-%'")
		})
	}
}

// seed inserts n old records whose keys begin with prefix.
func (l *ledger) seed(n int, prefix string) {
	l.t.Helper()
	_, err := l.pool.Exec(context.Background(), `
		insert into idem.records (scope, key, hash, execution_id, created_at, expires_at, state, status, completed_at)
		select $1, $2 || '-' || i, $4, gen_random_uuid(), now(), now() + interval '1 day', 'completed', 200, now()
		from generate_series(1, $3::int) i`, scope, prefix, n, hashA[:])
	noError(l.t, err)
}

// These tests verify what docs/choosing.md says about repeating a write that has no idempotency
// key.

// A repeated write leaves the same state, unless another client has written in between. The late
// repetition then overwrites the newer value. A compare-and-set happens once, and its repetition is
// refused although it was done.
func TestRepeatedWrite_WithoutAKeyOverwritesOrIsRefused(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	execute(t, pool, "create table accounts (id int primary key, city text, version int); insert into accounts values (1, '', 7)")
	const put = "insert into accounts values (1, $1) on conflict (id) do update set city = excluded.city"
	for _, city := range []string{"Lyon", "Turin", "Lyon"} { // the last one is a repetition that was delayed
		execute(t, pool, put, city)
	}
	var city string
	if err := pool.QueryRow(t.Context(), "select city from accounts").Scan(&city); err != nil || city != "Lyon" {
		t.Errorf("repeated late: %s, %v", city, err)
	}
	for _, rows := range []int64{1, 0} {
		if n := execute(t, pool, "update accounts set city = 'Rome', version = 8 where id = 1 and version = 7"); n != rows {
			t.Errorf("%d rows, want %d", n, rows)
		}
	}
}

// A unique business key never expires and refuses duplicates. The record beside it replays the
// response as long as it is retained.
func TestRepeatedWrite_UniqueKeyOutlivesTheRecord(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	execute(t, l.pool, "create table invoices (customer int, month date, unique (customer, month))")
	invoice := func() (idem.Result, error) {
		return idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
			_, err := tx.Exec(ctx, "insert into invoices values (7, '2026-11-01')")
			if txn.HasCode(err, "23505") {
				return idem.Response{}, idem.Reject(idem.Response{Status: 409})
			}
			return idem.Response{Status: 201}, err
		})
	}
	for _, replayed := range []bool{false, true} {
		if res, err := invoice(); err != nil || res.Status != 201 || res.Replayed != replayed {
			t.Errorf("%+v, %v", res, err)
		}
	}
	l.expire("k")
	if res, err := invoice(); err != nil || res.Status != 409 || res.Replayed || !res.Rejected {
		t.Errorf("after the record has expired: %+v, %v", res, err)
	}
	l.wantCount("invoices", 1, "select count(*) from invoices")
}

func execute(t testing.TB, db interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
}, sql string, args ...any) int64 {
	t.Helper()
	if len(args) == 0 { // pgx has no prepared statement of this text, which a DISCARD would spoil
		args = []any{pgx.QueryExecModeSimpleProtocol}
	}
	tag, err := db.Exec(context.Background(), sql, args...)
	noError(t, err)
	return tag.RowsAffected()
}
