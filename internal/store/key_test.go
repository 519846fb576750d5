package store

import (
	"math"
	"testing"
	"time"
)

// The lock of a key must never change: while two versions of a program run side by side, they have to take the same one.
func TestLockOfAKeyNeverChanges(t *testing.T) {
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

func TestKeyOfTheLongestTTLIsAnInterval(t *testing.T) {
	t.Parallel()
	k := NewKey("s", "k", [32]byte{}, "", math.MaxInt64)
	if want := "9223372036854775 microseconds"; string(k.ttl) != want {
		t.Errorf("the TTL travels as %q, want %q", k.ttl, want)
	}
	if k := NewKey("s", "k", [32]byte{}, "", 1500*time.Nanosecond); string(k.ttl) != "1 microseconds" {
		t.Errorf("the TTL travels as %q", k.ttl)
	}
}

func TestPartsOfAKeyDoNotShareRoomToGrow(t *testing.T) {
	t.Parallel()
	k := NewKey("scope", "key", [32]byte{7}, "operation", time.Second)
	for _, part := range [][]byte{k.scope, k.key, k.hash, k.operationID, k.ttl, k.lock} {
		_ = append(part, "overwritten, if there is room"...)
	}
	if string(k.scope)+string(k.key)+string(k.operationID)+string(k.ttl) != "scope"+"key"+"operation"+"1000000 microseconds" {
		t.Errorf("%q %q %q %q", k.scope, k.key, k.operationID, k.ttl)
	}
}

func TestAnotherLockOrNoneIsWhatTheClaimsTake(t *testing.T) {
	t.Parallel()
	k := NewKey("s", "k", [32]byte{}, "", time.Second)
	other := int64(-5)
	k.UseLock(&other)
	if k.Lock != -5 || string(k.lock) != "-5" {
		t.Errorf("lock %d, %q", k.Lock, k.lock)
	}
	k.UseLock(nil)
	if k.lock != nil {
		t.Errorf("no lock travels as %q", k.lock)
	}
}
