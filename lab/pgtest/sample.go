package pgtest

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

// Sampled reports whether a test that repeats itself at many points, such as a kill at each
// statement, should run at this point. Without IDEM_TEST_SAMPLE, it selects every point. If the
// variable is a number n, it selects every fifth point: n, n+5, and so on. With -short, it selects
// every tenth point, and n is 0 by default.
func Sampled(point int) bool {
	value, short := os.Getenv("IDEM_TEST_SAMPLE"), testing.Short()
	n, err := strconv.Atoi(value)
	if value != "" && (err != nil || n < 0) {
		panic(fmt.Sprintf("pgtest: IDEM_TEST_SAMPLE=%s is not a number", value))
	}
	switch {
	case short:
		return point%10 == n%10
	case value == "":
		return true
	}
	return point%5 == n%5
}
