package pgtest

import "testing"

// Long marks an expensive test. A cheaper test covers the same behavior with fewer cases. With
// -short, as in make test, Long skips the expensive test.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("long: make test/all runs it")
	}
}
