package promises_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
)

// Functions such as hashtext can be inverted. A client that chooses its key could then choose the
// lock.
func TestLockOfAKeyIsNoneThatAServerFunctionComputes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	app, err := l.pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Release()
	for _, lock := range []string{
		"hashtextextended('k', hashtextextended('" + scope + "', 0))", "hashtextextended('k', 0)", "hashtext('k')",
	} {
		if _, err := app.Exec(ctx, "select pg_advisory_lock("+lock+")"); err != nil {
			t.Fatal(err)
		}
	}
	defer app.Exec(ctx, "select pg_advisory_unlock_all()")
	if _, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"), idem.WithWait(0)); err != nil {
		t.Error(err)
	}
	l.wantOnce("k")
}

// A call takes the lock that LockOf computes, which other versions of the program take too.
func TestCallTakesTheLockOfItsKey(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, mode := range execModes {
		l := newLedger(t, withMode(mode))
		_, err := idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
			lock := db.LockOf(scope, "k")
			n := l.count(`select count(*) from pg_locks where locktype = 'advisory' and objsubid = 1
				and database = (select oid from pg_database where datname = current_database())
				and (classid::bigint << 32) | objid::bigint = $1`, lock)
			if n != 1 {
				t.Errorf("%v: %d locks with the number %d", mode, n, lock)
			}
			return ok, nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// Processes of different versions share a database, so they must take the same locks.
func TestLocksAreFrozen(t *testing.T) {
	for _, test := range []struct {
		scope, key string
		want       int64
	}{
		{"", "", -2947640373402203641},
		{"tenant-1/POST orders", "k", 2115797093249874214},
		{"é", "😀", -6404150236543092870},
	} {
		if got := db.LockOf(test.scope, test.key); got != test.want {
			t.Errorf("LockOf(%q, %q) = %d, want %d", test.scope, test.key, got, test.want)
		}
	}
}

func TestLockTellsScopeAndKeyApart(t *testing.T) {
	seen := map[int64]string{}
	for _, pair := range [][2]string{{"ab", "c"}, {"a", "bc"}, {"", "abc"}, {"abc", ""}, {"c", "ab"}, {"bc", "a"}} {
		lock := db.LockOf(pair[0], pair[1])
		if other, ok := seen[lock]; ok {
			t.Errorf("%q has the lock of %s", pair, other)
		}
		seen[lock] = pair[0] + " and " + pair[1]
	}
}
