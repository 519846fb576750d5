package idemtest_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// program is a program that keeps the promises, or breaks one of them.
type program interface {
	// labels returns the name of the program and the promise that it breaks. A report of the
	// promise also is ignored.
	labels() (name, breaks, also string)
	// run runs the suite on the program, with a multiple of its patience. Zero means the default.
	run(t testing.TB, times time.Duration)
}

// findsEach checks that the suite finds the mistake of each program.
func findsEach[P program](t *testing.T, programs []P) {
	t.Parallel()
	eachSampled(t, programs, func(t *testing.T, p P) {
		_, breaks, also := p.labels()
		requireFound(t, breaks, func(times time.Duration) []string {
			return slices.DeleteFunc(record(t, func(t testing.TB) { p.run(t, times) }), func(text string) bool {
				return also != "" && strings.HasPrefix(text, "idemtest: "+also+": ")
			})
		})
	})
}

// acceptsEach checks that the suite reports nothing about the programs.
func acceptsEach[P program](t *testing.T, programs []P) {
	t.Parallel()
	eachSampled(t, programs, func(t *testing.T, p P) { requireNothing(t, record(t, func(t testing.TB) { p.run(t, 0) })) })
}

// eachSampled runs a subtest for one of ten programs, and with -short for the first. All of them
// take many minutes: make idemtest runs them.
func eachSampled[P program](t *testing.T, programs []P, test func(*testing.T, P)) {
	step := 10
	switch {
	case os.Getenv("IDEM_TEST_ALL") != "":
		step = 1
	case testing.Short():
		step = len(programs)
	}
	for i := 0; i < len(programs); i += step {
		name, _, _ := programs[i].labels()
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			test(t, programs[i])
		})
	}
}
