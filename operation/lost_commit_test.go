package operation_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
)

// The answer to the first COMMIT of an operation is lost, and it takes its caller some time to ask for the outcome of it.
func TestDo_LostCommitCompletedByAnother(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	proxy, err := pgproxy.New(s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	trap := proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Freeze)
	answered := make(chan answer, 1)
	go func() {
		res, err := s.checkout().Do(t.Context(), s.through(proxy).pool, scope, "k", hashA, "a")
		answered <- answer{res, err}
	}()
	await(t, "the first COMMIT", trap.Fired())
	proxy.Refuse(pgproxy.Reset)
	proxy.Cut(pgproxy.Reset)
	want, err := s.checkout().Do(t.Context(), s.pool, scope, "k", hashA, "a", idem.WithWait(limit))
	if err != nil {
		t.Fatal(err)
	}
	proxy.Admit()
	got := await(t, "the caller", answered)
	if got.err != nil {
		t.Fatal(got.err)
	}
	if diff := cmp.Diff(want.Response, got.Response); diff != "" {
		t.Errorf("it got another answer (-answered +got):\n%s", diff)
	}
	s.wantOnce("a")
}
