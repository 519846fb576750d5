package idemtest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/idem-go/idem/operation"
)

// replays is how often Replay runs each history. Several runs detect code whose steps depend on the
// random order of a map.
const replays = 10

// Replay runs operations against recorded histories, without a database. pattern selects the files,
// in the syntax of filepath.Glob. Each file contains the recorded steps of one operation, as
// written by operation.History or the command "idem operation history". Usually an earlier release
// has started that operation.
//
// Replay takes the definition that has the name of the recorded operation and runs it on the
// recorded steps, as a process of the new release would. If the new code would park the operation,
// Replay calls t.Errorf, once for each file.
//
// Replay executes no step and writes nothing, so it does not test the functions of the steps. To
// test them too, use Operation and set the field Previous of its suite.
func Replay(t testing.TB, pattern string, definitions ...operation.Runnable) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("idemtest: no history matches %s: %v", pattern, err)
	}
	for _, name := range files {
		history, err := os.ReadFile(name)
		if err != nil {
			t.Fatalf("idemtest: %v", err)
		}
		replay(t, name, history, definitions)
	}
}

// replay runs the new code several times on one history. If the first run fails, the new code is
// incompatible with the history. If only a later run fails, the code is not deterministic.
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
			r.breaks(resumes, "%s was replayed %d times, and then parked at step %q: %s: %s", name, n, parked.Step, parked.Reason, parked.ReasonText)
		default:
			r.breaks(newCodeResumes, "%s is parked at step %q: %s: %s", name, parked.Step, parked.Reason, parked.ReasonText)
		}
		return
	}
}
