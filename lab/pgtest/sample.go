package pgtest

import (
	"os"
	"testing"
)

// Sampled reports whether a test that does the same at every point, of which there are many, does it at this one: it does at all of
// them, but with -short, or where IDEM_TEST_SAMPLE is set, at two of five.
func Sampled(point int) bool {
	return !testing.Short() && os.Getenv("IDEM_TEST_SAMPLE") == "" || point%5 < 2
}
