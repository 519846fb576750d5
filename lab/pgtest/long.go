package pgtest

import "testing"

// Long marks a test that costs much and repeats what a shorter one shows: in larger numbers, at more moments, through another door.
// With -short, as under make test, it is skipped.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("long: make test/all runs it")
	}
}
