package operation_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/operation"
)

// fill records n operations of a name and a state, begun one minute after the other, the first one an hour ago.
func (s *shop) fill(name string, state operation.State, n int) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), `
		insert into idem.operations (id, scope, key, hash, name, ttl, created_at, epoch, state, undoing, step, seq, since, wake_at, tries, attempts, reason, reason_step, reason_text, ended_at)
		select gen_random_uuid(), $1 || '/' || n, n::text, '', $1, 0, clock_timestamp() - interval '1 hour' + n * interval '1 minute', 1, $2, false,
		       'step ' || n % 2, 1, clock_timestamp(), clock_timestamp() + interval '1 day', 0, 0, case when $2 = 'parked' then 'call_in_doubt' end,
		       case when $2 = 'parked' then 'step ' || n % 2 end, case when $2 = 'parked' then 'the text' end,
		       case when $2 not in ('running', 'parked') then clock_timestamp() end
		from generate_series(0, $3 - 1) n`, name, string(state), n)
	if err != nil {
		s.t.Fatal(err)
	}
}

// list returns all that a filter selects, page by page.
func (s *shop) list(f operation.Filter) (all []operation.Listed) {
	s.t.Helper()
	for {
		page, err := operation.List(s.t.Context(), s.pool, f)
		if err != nil {
			s.t.Fatal(err)
		}
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		f.After = page[len(page)-1].ID
	}
}

func TestList_PagesThroughTheFilter(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fill("checkout", "parked", 20)
	s.fill("checkout", "running", 10)
	s.fill("checkout", "completed", 12)
	s.fill("refund", "parked", 5)
	s.fill("refund", "undone", 3)
	for _, test := range []struct {
		name   string
		filter operation.Filter
		want   int
	}{
		{"all", operation.Filter{}, 50},
		{"all, in small pages", operation.Filter{Limit: 7}, 50},
		{"of a state", operation.Filter{State: "parked", Limit: 4}, 25},
		{"that run", operation.Filter{State: "running"}, 10},
		{"that have ended", operation.Filter{State: "completed", Limit: 5}, 12},
		{"of a name", operation.Filter{Name: "refund"}, 8},
		{"of a name and a state", operation.Filter{Name: "refund", State: "parked"}, 5},
		{"at a step", operation.Filter{State: "parked", Step: "step 1"}, 12},
		{"of a scope", operation.Filter{Scope: "checkout/1"}, 11 + 1 + 3},
		{"older than 55 minutes", operation.Filter{Older: 55 * time.Minute, State: "parked"}, 6 + 5},
		{"that are not there", operation.Filter{Name: "nothing"}, 0},
	} {
		got := s.list(test.filter)
		ids := map[string]bool{}
		for _, o := range got {
			ids[o.ID] = true
			if f := test.filter; f.State != "" && o.State != f.State || f.Name != "" && o.Name != f.Name || !strings.HasPrefix(o.Scope, f.Scope) ||
				o.CreatedAt.IsZero() || o.EndedAt.IsZero() == (o.State != "running" && o.State != "parked") || (o.Reason == operation.ReasonCallInDoubt) != (o.State == operation.StateParked) || (o.ReasonText == "the text") != (o.State == operation.StateParked) {
				t.Errorf("%s: %+v", test.name, o)
			}
		}
		if len(got) != test.want || len(ids) != test.want {
			t.Errorf("%s: %d operations, %d different ones, want %d", test.name, len(got), len(ids), test.want)
		}
	}
}

func TestList_RefusesAnInvalidFilter(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, f := range []operation.Filter{{State: "broken"}, {Limit: -1}, {Limit: 1001}, {After: "'"}, {Older: -1}} {
		if _, err := operation.List(t.Context(), s.pool, f); err == nil {
			t.Errorf("%+v was accepted", f)
		}
	}
	if _, err := operation.RetryAll(t.Context(), s.pool, operation.Filter{State: "running"}); err == nil {
		t.Error("RetryAll of what runs")
	}
	for _, state := range []operation.State{"", operation.StateCompleted} {
		if _, err := operation.CancelAll(t.Context(), s.pool, operation.Filter{State: state}); err == nil {
			t.Errorf("CancelAll of state %q", state)
		}
	}
}

// Beside many operations that have ended, those that are parked or run are found by their own indexes.
func TestList_UsesTheIndexes(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fill("checkout", "completed", 5000)
	s.fill("checkout", "parked", 3)
	if _, err := s.pool.Exec(t.Context(), `analyze idem.operations`); err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"parked", "running"} {
		rows, _ := s.pool.Query(t.Context(), "explain (analyze, costs off, timing off, summary off) "+db.ListOperationsSQL,
			pgx.QueryExecModeExec, state, "00000000-0000-0000-0000-000000000000", "", "checkout", "", "0 s", 100)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range plan {
			if strings.Contains(line, "Rows Removed by Filter") || strings.Contains(line, "actual rows=5") {
				t.Errorf("%s: what has ended is read:\n%s", state, strings.Join(plan, "\n"))
				break
			}
		}
	}
}

func TestRetryAllCancelAll_ActOnceOnEach(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fill("checkout", "parked", 7)
	s.fill("refund", "parked", 2)
	s.fill("refund", "running", 4)
	s.fill("refund", "completed", 4)
	n, err := operation.RetryAll(t.Context(), s.pool, operation.Filter{Name: "checkout", Limit: 2})
	if n != 7 || err != nil {
		t.Errorf("%d were retried, %v", n, err)
	}
	if got := s.count(`select count(*) from idem.operations where name = 'checkout' and state = 'running' and epoch = 2`); got != 7 {
		t.Errorf("%d go on, want 7", got)
	}
	n, err = operation.CancelAll(t.Context(), s.pool, operation.Filter{Name: "refund", State: "running", Limit: 3})
	if n != 4 || err != nil {
		t.Errorf("%d were canceled, %v", n, err)
	}
	if got := s.count(`select count(*) from idem.operations where canceled`); got != 4 {
		t.Errorf("%d are canceled, want 4", got)
	}
	if got := s.count(`select count(*) from idem.operations where name = 'refund' and state = 'parked'`); got != 2 {
		t.Errorf("%d are left parked, want 2", got)
	}
}

func TestWait_ReturnsTheAnswer(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id, err := s.start(s.checkout(), "k", hashA, true)
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		res idem.Result
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		res, err := operation.Wait(t.Context(), s.pool, id)
		answers <- answer{res, err}
	}()
	s.work(t, s.checkout())
	a := await(t, "the answer", answers)
	if a.err != nil || a.res.Status != 201 || a.res.ExecutionID != id || !strings.HasPrefix(string(a.res.Body), "book: charged") {
		t.Errorf("%+v, %v", a.res, a.err)
	}
}

func TestWait_SaysWhyThereIsNoAnswer(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		end  func(op *operation.Op) (idem.Response, error)
		then string // SQL
		want error
	}{
		{"parked", func(op *operation.Op) (idem.Response, error) {
			_, err := operation.Call(op, "call", operation.Once, unanswered)
			return created, err
		}, "", operation.ErrParked},
		{"undone", func(op *operation.Op) (idem.Response, error) {
			return created, errors.Join(op.Checkpoint(), operation.Final(errDeclined))
		}, "", operation.ErrUndone},
		{"rejected", func(op *operation.Op) (idem.Response, error) {
			return created, errors.Join(op.Checkpoint(), idem.Reject(idem.Response{Status: 402}))
		}, "", nil},
		{"expired", func(op *operation.Op) (idem.Response, error) { return created, op.Checkpoint() },
			`update idem.records set expires_at = clock_timestamp()`, operation.ErrAnswerGone},
		{"used again", func(op *operation.Op) (idem.Response, error) { return created, op.Checkpoint() },
			`update idem.records set execution_id = gen_random_uuid()`, operation.ErrAnswerGone},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := operation.Define("op", func(op *operation.Op, _ string) (idem.Response, error) {
				if err := localStep(op, "before"); err != nil {
					return idem.Response{}, err
				}
				return test.end(op)
			})
			id, err := s.start(d, "k", hashA, true)
			if err != nil {
				t.Fatal(err)
			}
			s.work(t, d)
			res, err := operation.Wait(t.Context(), s.pool, id)
			if test.then != "" {
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.pool.Exec(t.Context(), test.then); err != nil {
					t.Fatal(err)
				}
				res, err = operation.Wait(t.Context(), s.pool, id)
			}
			if !errors.Is(err, test.want) || test.want == nil && (!res.Rejected || res.Status != 402) {
				t.Errorf("%+v, %v; want %v", res, err, test.want)
			}
			if did := s.did(); slices.Contains(did, "again") || len(did) > 2 {
				t.Errorf("waiting has had an effect: %v", did)
			}
		})
	}
	s := newShop(t)
	if _, err := operation.Wait(t.Context(), s.pool, "11111111-2222-4333-8444-555555555555"); !errors.Is(err, operation.ErrUnknownOperation) {
		t.Errorf("an operation that there is not: %v", err)
	}
}

func unanswered(context.Context, string) (string, error) { return "", errTimeout }
