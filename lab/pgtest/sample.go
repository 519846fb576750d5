package pgtest

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

// Sampled reports whether a test that does the same at every point, of which there are many, does it at this one: it does at all of
// them, but where IDEM_TEST_SAMPLE is a number n, or with -short, which is 0, at two of five: at points n and n+1, n+5 and n+6, and so on.
// With the race detector, which has nothing more to find at a statement than at the one before it, it is one of five: n+1, n+6, and so on.
// Three runs, with n, n+2 and n+4, of which the first may have the race detector, take all.
func Sampled(point int) bool {
	n, all := sample(os.Getenv("IDEM_TEST_SAMPLE"), testing.Short())
	return all || sampled(n, point, raced)
}

func sample(said string, short bool) (n int, all bool) {
	if said == "" {
		return 0, !short
	}
	n, err := strconv.Atoi(said)
	if err != nil || n < 0 {
		panic(fmt.Sprintf("pgtest: IDEM_TEST_SAMPLE=%s is not a number", said))
	}
	return n, false
}

func sampled(n, point int, raced bool) bool {
	behind := (point%5 - n%5 + 5) % 5
	return behind == 1 || behind == 0 && !raced
}
