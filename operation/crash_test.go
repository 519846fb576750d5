package operation_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// recorder records the statements of a run.
type recorder struct {
	mu  sync.Mutex
	sql []string
}

func (r *recorder) watch(e pgproxy.Event) {
	if e.Stage == pgproxy.Seen {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sql = append(r.sql, e.SQL)
	}
}

// nth matches the n-th statement, from 0.
func nth(n int) pgproxy.Match {
	var mu sync.Mutex
	count := -1
	return func(pgproxy.Statement) bool {
		mu.Lock()
		defer mu.Unlock()
		count++
		return count == n
	}
}

// story is an operation, and what must be committed in the end, however often its connections break.
type story struct {
	name       string
	definition func(*shop) *operation.Definition[string]
	rejected   bool
	did        string
	keys       int // of the bank
}

var stories = []story{
	{"it is done", (*shop).checkout, false, "[reserve book confirm book]", 1},
	{"it is undone", func(s *shop) *operation.Definition[string] {
		return s.trip(func(op *operation.Op) (idem.Response, error) {
			if err := op.Checkpoint(); err != nil {
				return idem.Response{}, err
			}
			return idem.Response{}, idem.Reject(declined)
		})
	}, true, "[flight hotel cancel hotel refund cancel flight]", 2},
}

// The connection of an operation breaks at each of its statements. Each step is done once and undone once, and each call has one key.
func TestDo_ConnectionCutAtAnyStatement(t *testing.T) {
	t.Parallel()
	for _, story := range stories {
		statements := story.statements(t)
		for n := range statements {
			if !pgtest.Sampled(n) {
				continue
			}
			for name, at := range map[string]func(pgproxy.Match) pgproxy.Point{
				"before": pgproxy.Before, "after the answer": func(m pgproxy.Match) pgproxy.Point { return pgproxy.AfterAnswer(m) },
			} {
				t.Run(fmt.Sprintf("%s, %s of statement %d", story.name, name, n), func(t *testing.T) {
					t.Parallel()
					s := newShop(t)
					proxy := pgtest.Proxy(t, s.dsn)
					behind := s.through(proxy, maxConns(2))
					proxy.Arm(at(nth(n)), pgproxy.Reset)
					story.tell(t, s, behind)
				})
			}
		}
	}
}

// statements returns the statements of a run without a fault.
func (st *story) statements(t *testing.T) []string {
	t.Helper()
	s := newShop(t)
	proxy := pgtest.Proxy(t, s.dsn)
	var r recorder
	defer proxy.Observe(r.watch)()
	st.tell(t, s, s.through(proxy, maxConns(2)))
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sql
}

// tell calls through a proxy, and then directly until there is an answer.
func (st *story) tell(t *testing.T, s, behind *shop) {
	t.Helper()
	res, err := st.definition(behind).Do(t.Context(), behind.pool, scope, "k", hashA, "book")
	for deadline := time.Now().Add(limit); err != nil && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		res, err = st.definition(s).Do(t.Context(), s.pool, scope, "k", hashA, "book")
	}
	if err != nil || res.Rejected != st.rejected {
		t.Fatalf("%+v, %v", res, err)
	}
	again, err := st.definition(s).Do(t.Context(), s.pool, scope, "k", hashA, "book")
	if err != nil || string(again.Body) != string(res.Body) || again.ExecutionID != res.ExecutionID {
		t.Errorf("first %+v, then %+v, %v", res, again, err)
	}
	if did := fmt.Sprint(slices.Compact(s.did())); did != st.did { // a refund is repeated, with its key
		t.Errorf("what is committed is %s", did)
	}
	if n, _ := s.bank.keys(); n != st.keys {
		t.Errorf("the bank saw %d keys, want %d", n, st.keys)
	}
	if n := s.count(`select count(*) from done where step <> 'refund'`) - s.count(`select count(distinct step) from done where step <> 'refund'`); n != 0 {
		t.Errorf("%d steps were done twice", n)
	}
}
