package promises_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/txn"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/schema"
	"github.com/idem-go/idem/purge"
)

// operating returns the SQL block of docs/operate.md that contains what.
func operating(t *testing.T, what string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
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

func TestRolesOfTheDocsDoTheirPartAndNoMore(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dsn := pgtest.EmptyDSN(t)
	admin := pgtest.Open(t, dsn)
	suffix := fmt.Sprintf("_%d", rand.Uint32()) // roles belong to the whole server, and this test may run twice at once
	own := strings.NewReplacer("idem_migrate", "idem_migrate"+suffix, "idem_call", "idem_call"+suffix,
		"idem_purge", "idem_purge"+suffix, "DATABASE shop", "DATABASE "+pgx.Identifier{admin.Config().ConnConfig.Database}.Sanitize())
	exec := func(pool *pgxpool.Pool, sql string) {
		t.Helper()
		if _, err := pool.Exec(ctx, own.Replace(sql), pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		exec(admin, "drop owned by idem_migrate, idem_call, idem_purge cascade; drop role idem_migrate, idem_call, idem_purge")
	})
	exec(admin, operating(t, "CREATE ROLE idem_call"))
	if err := schema.UpAt(ctx, as(dsn, own.Replace("idem_migrate"))); err != nil {
		t.Fatal(err)
	}
	exec(pgtest.Open(t, as(dsn, own.Replace("idem_migrate"))), operating(t, "GRANT DELETE"))
	calling, purging := pgtest.Open(t, as(dsn, own.Replace("idem_call"))), pgtest.Open(t, as(dsn, own.Replace("idem_purge")))

	for _, replayed := range []bool{false, true} {
		res, err := idemDo(ctx, calling, scope, "key", hashA, func(tx pgx.Tx) (idem.Response, error) { return idem.Response{Status: 201}, nil })
		if err != nil || res.Replayed != replayed {
			t.Fatalf("as idem_call: %+v, %v; want Replayed to be %v", res, err, replayed)
		}
	}
	if entry, err := idem.Lookup(ctx, calling, scope, "key"); err != nil || entry.State != idem.StateCompleted {
		t.Errorf("Lookup as idem_call: %+v, %v", entry, err)
	}
	if _, err := admin.Exec(ctx, "update idem.records set expires_at = now() - interval '2 hours'"); err != nil {
		t.Fatal(err)
	}
	if rep, err := purge.Once(ctx, purging, purge.Options{}); err != nil || rep.Deleted != 1 {
		t.Errorf("purge as idem_purge: %+v, %v; want one record deleted", rep, err)
	}
	migrating := pgtest.Open(t, as(dsn, own.Replace("idem_migrate")))
	for _, what := range []string{"PARTITION BY HASH", "GRANT DELETE", "isleaf"} {
		exec(migrating, operating(t, what))
	}
	if _, err := idemDo(ctx, calling, scope, "key of a partition", hashA, func(tx pgx.Tx) (idem.Response, error) { return idem.Response{Status: 201}, nil }); err != nil {
		t.Errorf("partitioned, as idem_call: %v", err)
	}
	if _, err := admin.Exec(ctx, "update idem.records set expires_at = now() - interval '2 hours'"); err != nil {
		t.Fatal(err)
	}
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
