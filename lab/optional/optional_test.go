package optional

import (
	"errors"
	"fmt"
	"testing"
)

func TestRequire_SkipsOnlyForAMissingProgram(t *testing.T) {
	for name, test := range map[string]struct {
		err      error
		required string
		want     string
	}{
		"installed":          {nil, "", ""},
		"missing":            {fmt.Errorf("start: %w", Needs("strace")), "", "skipped: needs strace (package strace)"},
		"missing, forbidden": {Needs("strace"), "1", "failed: IDEM_TEST_REQUIRE is set: needs strace (package strace)"},
		"another error":      {errors.New("no permission"), "", "failed: no permission"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("IDEM_TEST_REQUIRE", test.required)
			stub := &stubTB{TB: t}
			Require(stub, test.err)
			if stub.outcome != test.want {
				t.Errorf("got %q, want %q", stub.outcome, test.want)
			}
		})
	}
}

// stubTB records how a test would end.
type stubTB struct {
	testing.TB
	outcome string
}

func (s *stubTB) Helper()          {}
func (s *stubTB) Skip(args ...any) { s.outcome = "skipped: " + fmt.Sprint(args...) }
func (s *stubTB) Fatal(args ...any) {
	s.outcome = "failed: " + fmt.Sprint(args...)
}
func (s *stubTB) Fatalf(format string, args ...any) {
	s.outcome = "failed: " + fmt.Sprintf(format, args...)
}
