package operation_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// families are the committed steps of a parent and its child, and the requests to the carrier, that are allowed in the end, by the input
// of the victim.
var families = map[string][]string{
	"family":                 {"[reserve pack label confirm] fetch"},
	"family, child rejects":  {"[reserve pack unpack release] fetch return"},
	"family, parent rejects": {"[reserve pack label confirm recall release] fetch"},
	"family, canceled": { // before the child runs, while it runs, and when it has completed
		"[reserve release] ", "[reserve pack unpack release] fetch return", "[reserve pack label recall release] fetch",
	},
}

// family begins a parent, works on its child, and resumes the parent. books is a pool whose connections do not break.
func family(ctx context.Context, pool, books *pgxpool.Pool, in string) {
	child := shipping(books)
	parent := ordering(child, unseen)
	_, _ = parent.Do(ctx, pool, scope, "k", hashA, in, idem.WithWait(0))
	var id, childID string
	if books.QueryRow(ctx, `select o.id::text, c.id::text from idem.operations o join idem.operations c on c.parent = o.id`).Scan(&id, &childID) != nil {
		return
	}
	if in == "family, canceled" {
		if operation.Cancel(ctx, pool, id) != nil {
			return
		}
		_ = parent.Resume(ctx, pool, id)
	}
	_ = child.Resume(ctx, pool, childID)
	_ = parent.Resume(ctx, pool, id)
}

// endFamily resumes both until they have ended, and checks what is committed.
func (s *shop) endFamily(t *testing.T, in string, byWorker bool) {
	t.Helper()
	begun := s.count(`select count(*) from idem.operations where name = 'ordering'`)
	if steps, children := s.count(`select count(*) from idem.steps where kind = 'child'`), s.count(`select count(*) from idem.operations where name = 'shipping'`); steps != children {
		t.Fatalf("%d steps await %d children", steps, children)
	}
	if in == "family, canceled" && begun == 0 {
		return
	}
	isCanceled := in == "family, canceled"
	if isCanceled && s.count(`select count(*) from idem.operations where name = 'ordering' and canceled`) == 0 { // it has come to nothing
		in, isCanceled = "family", false
	}
	child := shipping(s.pool)
	parent := ordering(child, unseen)
	if byWorker {
		s.work(t, child, parent)
	}
	eventually(t, "both to end", func() bool {
		var id, childID string
		if begun == 0 {
			_, _ = parent.Do(t.Context(), s.pool, scope, "k", hashA, in, idem.WithWait(0))
		}
		err := s.pool.QueryRow(t.Context(), `select o.id::text, c.id::text from idem.operations o join idem.operations c on c.parent = o.id`).Scan(&id, &childID)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			t.Fatal(err)
		}
		if err == nil && !byWorker {
			_ = child.Resume(t.Context(), s.pool, childID)
			_ = parent.Resume(t.Context(), s.pool, id)
		} else if !byWorker {
			_, _ = parent.Do(t.Context(), s.pool, scope, "k", hashA, in, idem.WithWait(0))
		}
		return s.count(`select count(*) from idem.operations where ended_at is not null`) == 2
	})
	got := fmt.Sprint(s.did(), " ", s.text(`select coalesce(string_agg(what, ' ' order by id), '') from bank`))
	if !slices.Contains(families[in], got) {
		t.Errorf("what is committed is %s, want one of %q", got, families[in])
	}
	if n := s.count(`select count(*) from idem.operations`) + s.count(`select count(*) from idem.signals where not taken`); n != 2 {
		t.Errorf("%d operations and signals are left", n)
	}
	if isCanceled {
		return
	}
	res, err := parent.Do(t.Context(), s.pool, scope, "k", hashA, in)
	if rejected := in == "family, child rejects" || in == "family, parent rejects"; err != nil || !res.Replayed || res.Rejected != rejected {
		t.Errorf("the answer is %+v, %v", res, err)
	}
}

// familyStatements returns how many statements a run without a fault sends.
func familyStatements(t *testing.T, in string) []string {
	t.Helper()
	s := newBankShop(t)
	proxy := pgtest.Proxy(t, s.dsn)
	var r recorder
	stop := proxy.Observe(r.watch)
	family(t.Context(), s.through(proxy, maxConns(2)).pool, s.pool, in)
	stop()
	s.endFamily(t, in, false)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sql
}

// A process that works on both is killed before a statement, or behind its answer.
func TestChild_KilledAtAnyStatement(t *testing.T) {
	t.Parallel()
	for in := range families {
		for n, sql := range familyStatements(t, in) {
			for _, answered := range []bool{false, true} {
				if !pgtest.Sampled(n) || !isCommit(sql) && answered != (n%2 == 0) { // behind one is before the next, but for COMMIT
					continue
				}
				byWorker := n%3 == 0
				t.Run(fmt.Sprintf("%s, at statement %d, answered: %v, by a worker: %v", in, n, answered, byWorker), func(t *testing.T) {
					t.Parallel()
					s := newBankShop(t)
					s.killedAt(t, in, n, answered)
					s.endFamily(t, in, byWorker)
				})
			}
		}
	}
}

// The connection breaks, and the process lives.
func TestChild_ConnectionCutAtAnyStatement(t *testing.T) {
	t.Parallel()
	for in := range families {
		for n, sql := range familyStatements(t, in) {
			for name, at := range map[string]func(pgproxy.Match) pgproxy.Point{
				"before": pgproxy.Before, "after the answer": func(m pgproxy.Match) pgproxy.Point { return pgproxy.AfterAnswer(m) },
			} {
				if !pgtest.Sampled(n) || !isCommit(sql) && (name == "before") != (n%2 == 0) {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s of statement %d", in, name, n), func(t *testing.T) {
					t.Parallel()
					s := newBankShop(t)
					proxy := pgtest.Proxy(t, s.dsn)
					behind := s.through(proxy, maxConns(2))
					proxy.Arm(at(nth(n)), pgproxy.Reset)
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					family(ctx, behind.pool, s.pool, in)
					s.endFamily(t, in, n%3 == 0)
				})
			}
		}
	}
}

// The parent is canceled, or its child, or both, at any moment. The child is undone before the parent.
func TestCancel_FamilyAtAnyMoment(t *testing.T) {
	t.Parallel()
	const orders = 60
	s := newBankShop(t)
	child := shipping(s.pool)
	parent := ordering(child, unseen)
	s.work(t, child, parent)
	shopOn(t, s.dsn).work(t, child, parent)
	var cancelling sync.WaitGroup
	for n := range orders {
		in := []string{"book", "parent rejects", "child rejects"}[n%3]
		if _, err := parent.Do(t.Context(), s.pool, scope, fmt.Sprint("k", n), hashA, in, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
			t.Fatal(err)
		}
		id := s.text(`select id::text from idem.operations where key = $1`, fmt.Sprint("k", n))
		for _, id := range [][]string{{id}, {operation.ChildID(id, "ship")}, {id, operation.ChildID(id, "ship")}, {}}[rand.N(4)] {
			cancelling.Go(func() {
				time.Sleep(rand.N(time.Second / 5)) // a moment, and no more than that
				if err := operation.Cancel(t.Context(), s.pool, id); err != nil && !errors.Is(err, operation.ErrNotParked) {
					t.Error(err)
				}
			})
		}
	}
	cancelling.Wait()
	eventually(t, "all to end", func() bool {
		return s.count(`select count(*) from idem.operations where ended_at is not null`) == 2*orders
	})
	fits := map[string]bool{
		"completed of completed: reserve confirm, pack label": true, "failed of completed: reserve confirm recall release, pack label": true,
		"failed of failed: reserve release, pack unpack": true, "undone of failed: reserve release, pack unpack": true,
		"undone of undone: reserve release, ": true, "undone of undone: reserve release, pack unpack": true,
		"undone of completed: reserve recall release, pack label": true, "undone of completed: reserve confirm recall release, pack label": true,
	}
	rows, err := s.pool.Query(t.Context(), `select p.state || ' of ' || c.state || ': ' ||
		(select coalesce(string_agg(step, ' ' order by id), '') from done where operation_id = p.id::text) || ', ' ||
		(select coalesce(string_agg(step, ' ' order by id), '') from done where operation_id = c.id::text)
		from idem.operations p join idem.operations c on c.parent = p.id`)
	if err != nil {
		t.Fatal(err)
	}
	ends, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(ends) != orders {
		t.Fatalf("%d of them, %v", len(ends), err)
	}
	seen := map[string]int{}
	for _, end := range ends {
		seen[end]++
		if !fits[end] {
			t.Errorf("it has come to %s", end)
		}
	}
	t.Log(seen)
}
