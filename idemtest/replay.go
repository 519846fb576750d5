package idemtest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/idem-go/idem/operation"
)

// replays is the number of runs for each history. Several runs detect code whose steps depend on
// the random order of a map.
const replays = 10

// Replay runs operations against recorded histories, without a database. pattern selects the files,
// in the syntax of filepath.Glob. Each file is a history that operation.History or "idem operation
// history" has written, usually of an operation that an earlier release has started.
//
// Replay runs the definition with the name in the history on the recorded steps, as the first
// process with the new code will. If the new code would park the operation, Replay reports that
// with t.Errorf, once for each file.
//
// Replay executes no step and writes nothing, so it does not test the functions of the steps.
// Operation with the field Previous does.
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

// replay runs one history. A failure of the first run means that the new code is incompatible with
// the history. A failure of a later run means that the code is not deterministic.
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
