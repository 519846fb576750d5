package store_test

import (
	"testing"

	"github.com/idem-go/idem/internal/store"
)

// Processes of different versions share a database: they must take the same locks.
func TestLocksAreFrozen(t *testing.T) {
	for _, test := range []struct {
		scope, key string
		want       int64
	}{
		{"", "", -2947640373402203641},
		{"tenant-1/POST orders", "k", 2115797093249874214},
		{"é", "😀", -6404150236543092870},
	} {
		if got := store.LockOf(test.scope, test.key); got != test.want {
			t.Errorf("LockOf(%q, %q) = %d, want %d", test.scope, test.key, got, test.want)
		}
	}
}

func TestLockTellsScopeAndKeyApart(t *testing.T) {
	seen := map[int64]string{}
	for _, pair := range [][2]string{{"ab", "c"}, {"a", "bc"}, {"", "abc"}, {"abc", ""}, {"c", "ab"}, {"bc", "a"}} {
		lock := store.LockOf(pair[0], pair[1])
		if other, ok := seen[lock]; ok {
			t.Errorf("%q has the lock of %s", pair, other)
		}
		seen[lock] = pair[0] + " and " + pair[1]
	}
}
