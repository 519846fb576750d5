package pgtest

import "testing"

// Long marks an expensive test that covers more cases of what a cheaper test already covers. With
// -short, as in make test, Long skips the test.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("long: make test/all runs it")
	}
}
