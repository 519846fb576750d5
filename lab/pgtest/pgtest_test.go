package pgtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNew_LeakedConnectionFailsTheTest(t *testing.T) {
	t.Parallel()
	pool := New(t)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stub := &stubTB{TB: t}
	closePool(stub, pool, 10*time.Millisecond)
	conn.Release()
	if want := "1 connections are still acquired"; !stub.failed || !strings.Contains(stub.log, want) {
		t.Errorf("failed: %v, log: %q, want a failure with %q", stub.failed, stub.log, want)
	}
}

func TestDSN_WithoutAServer(t *testing.T) {
	for _, test := range []struct {
		name, url, template, require string
		skipped, failed              bool
	}{
		{name: "skips", skipped: true},
		{name: "skips without a template", url: "postgres://localhost/postgres", skipped: true},
		{name: "fails where a server is required", require: "1", failed: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("IDEM_TEST_DATABASE_URL", test.url)
			t.Setenv("IDEM_TEST_TEMPLATE", test.template)
			t.Setenv("IDEM_TEST_REQUIRE", test.require)
			stub := &stubTB{TB: t}
			stub.run(func() { DSN(stub) })
			if diff := cmp.Diff([]bool{test.skipped, test.failed}, []bool{stub.skipped, stub.failed}); diff != "" {
				t.Errorf("skipped, failed (-want +got):\n%s", diff)
			}
			if want := "make test GOTEST='-run ^TestDSN_WithoutAServer$'"; !strings.Contains(stub.log, want) {
				t.Errorf("log is %q, want it to contain %q", stub.log, want)
			}
		})
	}
}

// stubTB is a testing.TB whose outcome another test checks.
type stubTB struct {
	testing.TB
	failed, skipped bool
	log             string
}

func (s *stubTB) Failed() bool              { return s.failed }
func (s *stubTB) Logf(f string, a ...any)   { s.log += fmt.Sprintf(f, a...) }
func (s *stubTB) Errorf(f string, a ...any) { s.failed = true; s.Logf(f, a...) }
func (s *stubTB) Skip(a ...any)             { s.skipped = true; s.stop(a...) }
func (s *stubTB) Fatal(a ...any)            { s.failed = true; s.stop(a...) }

type stopped struct{}

func (s *stubTB) stop(a ...any) {
	s.log += fmt.Sprint(a...)
	panic(stopped{})
}

// run runs a test function that may end its goroutine.
func (s *stubTB) run(f func()) {
	defer func() {
		if r := recover(); r != nil && r != (stopped{}) {
			panic(r)
		}
	}()
	f()
}
