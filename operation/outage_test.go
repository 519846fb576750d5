package operation_test

import (
	"errors"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// The database is unavailable when a call returns, and while a Worker polls. The operation goes on later, and the error of the caller is
// retryable.
func TestWorker_SurvivesADatabaseOutage(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	proxy := pgtest.Proxy(t, s.dsn)
	behind := s.through(proxy, maxConns(4))
	b := newBlocked(s, operation.Keyed(time.Hour))
	answers := b.call(t.Context(), behind)
	running := await(t, "the call", b.begun)
	proxy.Refuse(pgproxy.Reset)
	proxy.Cut(pgproxy.Reset)
	await(t, "the end of the call's context: no other process sees this one any more", running.Done())
	b.release <- errors.New("canceled")
	a := await(t, "the caller", answers)
	if a.err == nil || !idem.Retryable(a.err) {
		t.Errorf("the caller got %v", a.err)
	}
	behind.work(t, b) // which begins in the middle of it
	proxy.Admit()
	b.release <- nil
	eventually(t, "the operation to end", func() bool { return s.count(`select count(*) from idem.operations where state = 'completed'`) == 1 })
	s.wantBlocked()
}
