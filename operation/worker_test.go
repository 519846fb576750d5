package operation_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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
			want(t, nil)(s.start(d, fmt.Sprint(i, d == limited), hashA, true))
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

// workRarely runs a Worker with a long poll until the test ends.
func (s *shop) workRarely(t *testing.T, definitions ...operation.Runnable) {
	t.Helper()
	s.workWith(t, operation.WorkerConfig{Poll: 24 * time.Hour}, definitions...)
}

const guards = `select count(*) from pg_locks where locktype = 'advisory' and classid = 1768187248 and objsubid = 2
	and database = (select oid from pg_database where datname = current_database())`

// Another process with a Worker notices a killed process before its next look.
func TestGuard_NoticesADeadProcess(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	d := pointed(s.pool, func(string) {})
	proxy := pgtest.Proxy(t, s.dsn)
	s.through(proxy).workRarely(t, d)
	v := newVictim(t, s, "charged", "book")
	await(t, "the guard to watch its lock", proxy.Next(pgproxy.Answered, pgproxy.Contains("SeeGone")))
	v.kill()
	killed := time.Now()
	eventually(t, "the operation to end", s.completed(1))
	t.Logf("ended %v after the kill", time.Since(killed))
	s.wantBooks("book")
}

// At most two processes are guards, however many Workers run. When one ends, another takes its
// place.
func TestGuard_TwoAtMost(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := s.checkout()
	var stops []func()
	for range 3 {
		stops = append(stops, shopOn(t, s.dsn).workWith(t, operation.WorkerConfig{}, d))
	}
	eventually(t, "two guards", func() bool { return s.count(guards) == 2 && s.count(presences) == 3 })
	stops[0]()
	stops[1]()
	eventually(t, "the third to be a guard", func() bool { return s.count(guards) == 1 && s.count(presences) == 1 })
}

// aside returns the shop with a pool and a presence of its own, as another process has.
func (s *shop) aside(configure ...func(*pgxpool.Config)) *shop {
	s.t.Helper()
	return &shop{t: s.t, pool: pgtest.Open(s.t, s.dsn, configure...), dsn: s.dsn, bank: s.bank}
}

// startAll starts operations in one transaction. Their inputs are their keys.
func (s *shop) startAll(d *operation.Definition[string], keys ...string) (ids []string) {
	s.t.Helper()
	must(s.t, pgx.BeginFunc(context.Background(), s.pool, func(tx pgx.Tx) (err error) {
		for _, key := range keys {
			id, failed := d.Start(context.Background(), tx, scope, key, hashA, key)
			ids, err = append(ids, id), first(err, failed)
		}
		return err
	}))
	return ids
}

// numbered returns n different keys.
func numbered(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint("k", i))
	}
	return keys
}

// A guard notifies other processes of due operations that it has no room for. They claim them long
// before their next poll.
func TestGuard_NotifiesProcessesWithRoom(t *testing.T) {
	t.Parallel()
	const processes = 4
	s := newShop(t)
	var together sync.WaitGroup
	together.Add(processes)
	d := operation.Define("together", func(op *operation.Op, _ string) (idem.Response, error) {
		together.Done()
		together.Wait() // until there is one in each process
		return created, localStep(op, "book")
	}, operation.WithConcurrency(1))
	for range processes {
		s.aside().workRarely(t, d)
	}
	eventually(t, "all processes and two guards", func() bool { return s.count(presences) == processes && s.count(guards) == 2 })
	s.startAll(d, numbered(processes)...)
	eventually(t, "all operations to end", s.completed(processes))
}

const unknownID = "11111111-2222-4333-8444-555555555555"

func TestResume_GoesOnAndBeginsNone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := s.checkout()
	for _, id := range []string{unknownID, "'; drop table"} {
		want(t, operation.ErrUnknownOperation)(nil, d.Resume(t.Context(), s.pool, id))
	}
	id, err := s.start(d, "k", hashA, true)
	must(t, err)
	for range 2 { // the second finds that it has ended
		must(t, d.Resume(t.Context(), s.pool, id))
	}
	s.wantDid("order k", "reserve book", "confirm book")
	s.wantCount(1, `select count(*) from idem.records`)
}

func TestResume_LeavesOthersAlone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := newBlocked(s, operation.Keyed(time.Hour))
	answers := s.goDo(t.Context(), b.Definition)
	await(t, "the call", b.begun)
	id := s.operationID()
	for _, there := range []*shop{s, shopOn(t, s.dsn)} { // this process, and another one
		want(t, idem.ErrInProgress)(nil, b.Resume(t.Context(), there.pool, id))
	}
	s.wantCount(1, `select epoch from idem.operations`)
	b.release <- nil
	must(t, await(t, "the answer", answers).err)
	other := s.startAll(s.checkout(), "other")[0]
	if err := b.Resume(t.Context(), s.pool, other); err == nil || b.calls.Load() != 1 {
		t.Errorf("the function of another definition was run: %v", err)
	}
	if state := s.text(`select state from idem.operations where id = $1`, other); state != "running" {
		t.Errorf("it is %s", state)
	}
}

func TestDue_ListsWhatAWorkerWouldClaim(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := newBlocked(s, operation.Keyed(time.Hour))
	answers := s.goDo(t.Context(), b.Definition)
	await(t, "the call", b.begun)
	ids := map[string]string{}
	start := func(name string, is string) {
		t.Helper()
		d := operation.Define(name, func(*operation.Op, string) (idem.Response, error) { return created, nil })
		id := s.startAll(d, is)[0]
		ids[is] = id
		s.exec(`update idem.operations set `+map[string]string{
			"late":     `wake_at = clock_timestamp() - interval '2 minutes'`,
			"later":    `wake_at = clock_timestamp() - interval '1 minute', epoch = 7`,
			"asleep":   `wake_at = clock_timestamp() + interval '1 hour'`,
			"parked":   `state = 'parked'`,
			"left":     `owner = 2147483647, wake_at = clock_timestamp() - interval '3 minutes'`, // by a process that is not there any more
			"signal":   `kind = 'await', step = 'approve', seq = 1, wake_at = clock_timestamp() + interval '1 hour'`,
			"calling":  `kind = 'await', step = 'approve', seq = 1, wake_at = clock_timestamp() + interval '1 hour'`,
			"stranger": `wake_at = clock_timestamp() - interval '4 minutes'`,
		}[is]+` where id = $1`, id)
	}
	for _, is := range []string{"late", "later", "asleep", "parked", "left", "signal", "calling"} {
		start("checkout", is)
	}
	start("another", "stranger")
	s.exec(`insert into idem.steps values ($1, 1, 'await', 'approve', null, now(), 'waiting', null)`, ids["signal"])
	for _, id := range []string{ids["signal"], ids["calling"]} {
		must(t, operation.Signal(t.Context(), s.pool, id, "approve", true))
	}
	want := []operation.Pending{
		{ID: ids["left"], Name: "checkout", Epoch: 1}, {ID: ids["late"], Name: "checkout", Epoch: 1}, {ID: ids["later"], Name: "checkout", Epoch: 7},
		{ID: ids["signal"], Name: "checkout", Epoch: 1},
	}
	for name, test := range map[string]struct {
		limit int
		but   []operation.Pending
		want  []operation.Pending
	}{
		"all":                         {100, nil, want},
		"a few":                       {2, nil, want[:2]},
		"but for some":                {2, want[1:3], []operation.Pending{want[0], want[3]}},
		"but for one in other epochs": {100, []operation.Pending{{ID: ids["late"], Epoch: 2}}, want},
	} {
		got, err := operation.Due(t.Context(), s.pool, []string{"checkout", "blocked"}, test.limit, test.but...)
		if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +due):\n%s", name, err, diff)
		}
	}
	b.release <- nil
	must(t, await(t, "the answer", answers).err)
	// A Worker claims the same.
	s.work(t, operation.Define("checkout", func(op *operation.Op, _ string) (idem.Response, error) {
		if op.ID() == ids["signal"] {
			_, err := operation.Await[bool](op, "approve", time.Hour)
			return created, err
		}
		return created, nil
	}))
	eventually(t, "the worker to end what is due", func() bool {
		return s.count(`select count(*) from idem.operations where name = 'checkout' and state = 'completed'`) == len(want)
	})
	for is, id := range ids {
		ended := s.count(`select count(*) from idem.operations where id = $1 and state = 'completed'`, id) == 1
		if due := slices.ContainsFunc(want, func(p operation.Pending) bool { return p.ID == id }); due != ended {
			t.Errorf("%s: due %t, ended %t", is, due, ended)
		}
	}
}

// start starts an operation in a transaction, and commits it if asked to.
func (s *shop) start(d *operation.Definition[string], key string, hash idem.Hash, commit bool) (id string, err error) {
	s.t.Helper()
	tx, err := s.pool.Begin(context.Background())
	must(s.t, err)
	defer tx.Rollback(context.Background())
	want(s.t, nil)(write("order " + key)(tx))
	id, err = d.Start(context.Background(), tx, scope, key, hash, "book")
	if err == nil && commit {
		err = tx.Commit(context.Background())
	}
	return id, err
}

func TestStart_IsPartOfTheTransaction(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	checkout := s.checkout()
	want(t, nil)(s.start(checkout, "never", hashA, false))
	id, err := s.start(checkout, "k", hashA, true)
	must(t, err)
	again, err := s.start(checkout, "k", hashA, true)
	if err != nil || again != id {
		t.Errorf("started again it is %s, %v; it was %s", again, err, id)
	}
	want(t, idem.ErrMismatch)(s.start(checkout, "k", hashB, true))
	entry, err := idem.Lookup(t.Context(), s.pool, scope, "k")
	if err != nil || entry.State != idem.StateProcessing || entry.ExecutionID != id {
		t.Errorf("%+v, %v", entry, err)
	}
	s.work(t, checkout)
	eventually(t, "the operation to end", func() bool {
		entry, err = idem.Lookup(t.Context(), s.pool, scope, "k")
		return err == nil && entry.State == idem.StateCompleted
	})
	res, err := checkout.Do(t.Context(), s.pool, scope, "k", hashA, "book")
	if err != nil || !res.Replayed || res.ExecutionID != id {
		t.Errorf("%+v, %v", res, err)
	}
	if after, err := s.start(checkout, "k", hashA, true); err != nil || after != id {
		t.Errorf("started after its end it is %s, %v", after, err)
	}
	s.wantDid("order k order k reserve book confirm book order k")
	s.wantCount(0, `select count(*) from idem.records where key = 'never'`)
}

func TestWorker_ManyDueAtOnceAreDoneOnce(t *testing.T) {
	t.Parallel()
	const many = 80
	s := newShop(t, maxConns(8))
	d := operation.Define("many", func(op *operation.Op, key string) (idem.Response, error) {
		return created, first(localStep(op, key), outsideStep(op, "call"))
	})
	s.startAll(d, numbered(many)...)
	for range 2 {
		s.work(t, d)
	}
	other := shopOn(t, s.dsn, maxConns(4)) // as another process would be
	other.work(t, d)
	eventually(t, "all to end", s.completed(many))
	s.wantCount(many, `select count(*) from done`)
	s.wantCount(many, `select count(distinct step) from done`)
	s.wantCount(0, `select count(*) from idem.operations where epoch <> 2`)
}
