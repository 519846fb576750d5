package doctor

import (
	"errors"
	"testing"
)

// After an error a check has zero values, from which it must conclude nothing. A query would panic
// here, because the exam has no transaction.
func TestExam_ConcludesNothingAfterAnError(t *testing.T) {
	t.Parallel()
	var e exam
	e.note("a finding before the error", "")
	first := errors.New("the statement was canceled")
	e.failed(first)
	var fsync bool
	e.one("SELECT current_setting('fsync')::bool", nil, &fsync)
	e.each("SELECT true", nil, []any{&fsync}, func() {})
	if names := e.texts("SELECT 'x'"); !fsync || len(names) == 0 {
		e.problem("fsync is off", "set fsync = on")
	}
	if e.failed(errors.New("a later error")); e.err != first || len(e.result.Findings) != 1 {
		t.Errorf("error %v, findings %+v", e.err, e.result.Findings)
	}
}
