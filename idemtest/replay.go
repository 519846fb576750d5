package idemtest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/idem-go/idem/operation"
)

// replays is how often each history is replayed: the order of a map is another one in one of so many runs.
const replays = 10

// Replay holds operations to their histories, with no database. Each file whose path matches pattern, as filepath.Glob has it, is one that
// operation.History or "idem operation history" has written, of an operation that an earlier release has begun. The definition of its name is run
// on what is on record, as the process is that goes on with it once this code is out. What this code would park is reported by t.Errorf, file
// by file.
//
// Nothing is called and nothing is written: what the steps do is not tried. Operation tries that, with the code of the last release.
func Replay(t testing.TB, pattern string, definitions ...operation.Runnable) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("idemtest: no history is called %s: %v", pattern, err)
	}
	for _, name := range files {
		history, err := os.ReadFile(name)
		if err != nil {
			t.Fatalf("idemtest: %v", err)
		}
		replay(t, name, history, definitions)
	}
}

func replay(t testing.TB, name string, history []byte, definitions []operation.Runnable) {
	t.Helper()
	r := newReport(t)
	for n := range replays {
		err := operation.Replay(t.Context(), history, definitions...)
		switch parked := (*operation.ParkedError)(nil); {
		case err == nil:
			continue
		case !errors.As(err, &parked):
			t.Errorf("idemtest: %s: %v", name, err)
		case n > 0:
			r.breaks(goesOn, "%s was replayed %d times, and then it is parked at step %q: %s: %s", name, n, parked.Step, parked.Reason, parked.ReasonText)
		default:
			r.breaks(oldGoesOn, "%s is parked at step %q: %s: %s", name, parked.Step, parked.Reason, parked.ReasonText)
		}
		return
	}
}
