package idemtest_test

import (
	"os"
	"testing"
)

// sampled selects one of ten programs, and with -short the first. All of them take many minutes:
// make idemtest runs them.
func sampled(i int) bool {
	switch {
	case os.Getenv("IDEM_TEST_ALL") != "":
		return true
	case testing.Short():
		return i == 0
	}
	return i%10 == 0
}
