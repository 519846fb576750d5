package idem_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// sweep is the statement by which the docs delete expired records, with small portions.
func sweep(t *testing.T) string {
	t.Helper()
	for _, sql := range blocks(documents(t)["docs/guarantees.md"], "sql") {
		if strings.Contains(sql, "SKIP LOCKED") {
			small := strings.Replace(sql, ":= 1000;", ":= 7;", 1)
			if small == sql {
				t.Fatal("the portion is not where this test looks for it")
			}
			return small
		}
	}
	t.Fatal("the docs do not say how to delete expired records")
	return ""
}

func TestSweepInTheDocsDeletesWhatHasExpiredAndNothingElse(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	const each = 2_000 // dozens of portions
	for _, state := range []struct{ prefix, expired string }{
		{"live", "-1 hour"}, {"just expired", "10 minutes"}, {"expired", "2 hours"}, {"locked", "2 hours"}, {"live too", "-1 second"},
	} {
		l.seed(each, state.prefix)
		_, err := l.pool.Exec(ctx, "update idem.records set expires_at = now() - $2::interval where key like $1 || '-%'", state.prefix, state.expired)
		if err != nil {
			t.Fatal(err)
		}
	}
	tx := l.begin(ctx)
	if _, err := tx.Exec(ctx, "select 1 from idem.records where key like 'locked-%' for update"); err != nil {
		t.Fatal(err)
	}
	sql := sweep(t)
	left := func() string {
		var names string
		err := l.pool.QueryRow(ctx, `select string_agg(format('%s: %s', name, n), ', ' order by name)
			from (select split_part(key, '-', 1) as name, count(*) as n from idem.records group by 1) _`).Scan(&names)
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	for _, want := range []string{
		"just expired: 2000, live: 2000, live too: 2000, locked: 2000",
		"just expired: 2000, live: 2000, live too: 2000",
	} {
		if _, err := l.pool.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
		if got := left(); got != want {
			t.Errorf("left are %s; want %s", got, want)
		}
		tx.Rollback(ctx)
	}
}
