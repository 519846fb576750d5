package idemtest_test

import (
	"os"
	"testing"
)

// The tests use the server that all tests of this repository share, if there is one.
func TestMain(m *testing.M) {
	if address := os.Getenv("IDEM_TEST_DATABASE_URL"); address != "" {
		os.Setenv("DATABASE_URL", address)
	}
	os.Exit(m.Run())
}
