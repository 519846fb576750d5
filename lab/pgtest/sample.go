package pgtest

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

// Sampled reports whether a test that does the same at each of many points, such as a kill at each statement, does it at this
// point. Where IDEM_TEST_SAMPLE is a number n, one point of five is taken, and with -short one of ten: n, n+5 (or n+10), and so on.
// Without it all are taken, and with -short the sample 0.
func Sampled(point int) bool {
	said, short := os.Getenv("IDEM_TEST_SAMPLE"), testing.Short()
	n, err := strconv.Atoi(said)
	if said != "" && (err != nil || n < 0) {
		panic(fmt.Sprintf("pgtest: IDEM_TEST_SAMPLE=%s is not a number", said))
	}
	switch {
	case short:
		return point%10 == n%10
	case said == "":
		return true
	}
	return point%5 == n%5
}
