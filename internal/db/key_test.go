package db

import (
	"testing"
)

// The lock of a key must never change: two versions of a program that run side by side must take
// the same lock.
func TestLockOf_NeverChanges(t *testing.T) {
	t.Parallel()
	for _, vector := range []struct {
		scope, key string
		lock       int64
	}{
		{"", "", -2947640373402203641},
		{"a", "b", -8642885240013303820},
		{"ab", "", 4073035276307721021},
		{"", "ab", -119984089896621859},
		{"tenant-1/POST orders", "7f3c9a52-0d1e-4b6f", -3599507062337227658},
		{"Mandant/Überweisung", "\U0001F511", -2888826674543447122},
	} {
		if lock := LockOf(vector.scope, vector.key); lock != vector.lock {
			t.Errorf("LockOf(%q, %q) = %d, want %d", vector.scope, vector.key, lock, vector.lock)
		}
	}
}
