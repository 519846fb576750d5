package operation_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

func TestWorker_HoldsWithConcurrency(t *testing.T) {
	t.Parallel()
	const few, many, each = 2, 4, 6
	s := newShop(t)
	var running, most [2]atomic.Int64
	begun, release := make(chan struct{}, 2*each), make(chan struct{})
	define := func(kind int, name string, opts ...operation.Option) *operation.Definition[string] {
		return operation.Define(name, func(op *operation.Op, _ string) (idem.Response, error) {
			_, err := operation.Call(op, "call", operation.Keyed(time.Hour), func(context.Context, string) (int, error) {
				n := running[kind].Add(1)
				defer running[kind].Add(-1)
				for m := most[kind].Load(); n > m && !most[kind].CompareAndSwap(m, n); m = most[kind].Load() {
				}
				begun <- struct{}{}
				<-release
				return 0, nil
			})
			return created, err
		}, opts...)
	}
	limited, free := define(0, "limited", operation.WithConcurrency(few)), define(1, "free")
	for i := range each {
		for _, d := range []*operation.Definition[string]{limited, free} {
			if _, err := s.start(d, fmt.Sprint(i, d == limited), hashA, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.workWith(t, operation.WorkerConfig{Concurrency: few + many}, limited, free)
	for range few + many { // as many as there is room for
		await(t, "a call", begun)
	}
	close(release)
	eventually(t, "all operations to end", s.completed(2*each))
	if n := most[0].Load(); n != few {
		t.Errorf("%d of the limited ones at a time, want %d", n, few)
	}
	if n := most[1].Load(); n > few+many {
		t.Errorf("%d of the others at a time, and there is room for %d in all", n, few+many)
	}
}

// An operation that was only started has no steps: the Worker does not read them.
func TestWorker_ReadsNoStepsOfStartedOperations(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := operation.Define("checkout", func(op *operation.Op, _ string) (idem.Response, error) { return created, localStep(op, "book") })
	s.startSome(t, d, 20)
	proxy := pgtest.Proxy(t, s.dsn)
	var read atomic.Int64
	t.Cleanup(proxy.Observe(func(e pgproxy.Event) {
		if e.Stage == pgproxy.Seen && strings.Contains(e.Statement.SQL, "LoadStepsOf :many") {
			read.Add(1)
		}
	}))
	s.through(proxy).work(t, d)
	eventually(t, "all operations to end", s.completed(20))
	if n := read.Load(); n > 0 {
		t.Errorf("steps were read %d times", n)
	}
}
