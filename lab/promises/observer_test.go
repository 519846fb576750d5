package promises_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

// log is an observer that records everything. It returns a context of its own from TraceStart and
// expects that context later.
type log struct {
	t       *testing.T
	context func(context.Context) context.Context // what TraceStart returns in place of it, if set

	mu     sync.Mutex
	starts []idem.TraceStartData
	events []idem.TraceEventData
	ends   []idem.TraceEndData
	order  []string    // all events except stages
	stages []string    // stages only
	notify chan string // receives every event except stages, if set
}

type logged struct{ *log }

func (l *log) TraceStart(ctx context.Context, data idem.TraceStartData) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts, l.order = append(l.starts, data), append(l.order, "start")
	if l.context != nil {
		ctx = l.context(ctx)
	}
	return context.WithValue(ctx, logged{l}, len(l.starts))
}

func (l *log) TraceEvent(ctx context.Context, data idem.TraceEventData) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wantContext(ctx)
	l.stages = append(l.stages, string(data.Event))
	if isStage(data.Event) {
		return
	}
	l.events, l.order = append(l.events, data), append(l.order, string(data.Event))
	if l.notify != nil {
		l.notify <- string(data.Event)
	}
}

func (l *log) TraceEnd(ctx context.Context, data idem.TraceEndData) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wantContext(ctx)
	l.ends, l.order = append(l.ends, data), append(l.order, string(data.Outcome))
	l.stages = append(l.stages, string(data.Outcome))
}

func (l *log) wantContext(ctx context.Context) {
	if ctx.Value(logged{l}) == nil {
		l.t.Error("the context is not the one that TraceStart returned")
	}
}

// observed is a call with the events that are expected of it.
type observed struct {
	name     string
	call     func(o idem.Option) (idem.Result, error)
	order    []string // events after "start"
	attempts int
}

func TestObserverSeesEveryOutcomeExactlyAsItWas(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	busy := l.hold(t, "busy", hashA, nil)
	do := func(key string, hash idem.Hash, fn func(pgx.Tx) (idem.Response, error), opts ...idem.Option) func(idem.Option) (idem.Result, error) {
		return func(o idem.Option) (idem.Result, error) {
			return idemDo(ctx, l.pool, scope, key, hash, fn, append(opts, o)...)
		}
	}
	ending := func(key string, end error) func(pgx.Tx) (idem.Response, error) {
		return func(tx pgx.Tx) (idem.Response, error) {
			resp, err := l.charge(key)(tx)
			return resp, errors.Join(err, end)
		}
	}
	failures := 0
	for _, test := range []observed{
		{"executed", do("k", hashA, l.charge("k")), []string{"executed"}, 1},
		{"replayed", do("k", hashA, l.charge("k")), []string{"replayed"}, 0},
		{"mismatch", do("k", hashB, l.charge("k")), []string{"mismatch"}, 0},
		{"rejected", do("r", hashA, ending("r", idem.Reject(ok))), []string{"rejected"}, 1},
		{"rejected, replayed", do("r", hashA, l.charge("r")), []string{"replayed"}, 0},
		{"failed", do("f", hashA, ending("f", errBusiness)), []string{"failed"}, 1},
		{"aborted", do("f", hashA, func(tx pgx.Tx) (idem.Response, error) { tx.Exec(ctx, "select 1/0"); return ok, nil }), []string{"failed"}, 1},
		{"ended", do("f", hashA, func(tx pgx.Tx) (idem.Response, error) { tx.Commit(ctx); return ok, nil }), []string{"failed"}, 1},
		{"too large", do("f", hashA, ending("f", nil), idem.WithMaxResponse(0)), []string{"failed"}, 1},
		{"invalid key", do("", hashA, l.charge("")), []string{"failed"}, 0},
		{"no fn", do("f", hashA, nil), []string{"failed"}, 0},
		{"in progress", do("busy", hashA, l.charge("busy"), idem.WithWait(0)), []string{"in_progress"}, 0},
		{"in progress after a wait", do("busy", hashA, l.charge("busy"), idem.WithWait(time.Millisecond)), []string{"waiting", "in_progress"}, 0},
		{"retried", do("again", hashA, func(tx pgx.Tx) (idem.Response, error) {
			if failures++; failures <= 2 {
				return ok, serializationFailure
			}
			return l.charge("again")(tx)
		}), []string{"retried", "retried", "executed"}, 3},
		{"retried in vain", do("vain", hashA, ending("vain", serializationFailure), idem.WithRetries(2)), []string{"retried", "retried", "failed"}, 3},
		{"DoJSON", func(o idem.Option) (idem.Result, error) {
			_, res, err := idem.DoJSON(ctx, l.pool, scope, "json", hashA, func(pgx.Tx) (int, error) { return 1, nil }, o)
			return res, err
		}, []string{"executed"}, 1},
	} {
		o := &log{t: t}
		begun := time.Now()
		res, err := test.call(idem.WithObserver(o))
		o.check(test, false, res, err, time.Since(begun))
	}
	busy.release()
	if err := busy.wait(t); err != nil {
		t.Error(err)
	}
}

// check compares the recorded events of one call with what the call returned.
func (l *log) check(test observed, joined bool, res idem.Result, err error, took time.Duration) {
	t := l.t
	t.Helper()
	if diff := cmp.Diff(append([]string{"start"}, test.order...), l.order); diff != "" {
		t.Errorf("%s: (-want +seen)\n%s", test.name, diff)
		return
	}
	if start := l.starts[0]; start.Joined != joined || start.Scope != scope {
		t.Errorf("%s: %+v", test.name, start)
	}
	end := l.ends[0]
	if end.Err != err || end.Cause != idem.CauseOf(err) || end.ExecutionID != res.ExecutionID || end.Attempts != test.attempts {
		t.Errorf("%s: ended with %+v; the call returned %+v, %v after %d attempts", test.name, end, res, err, test.attempts)
	}
	if end.Duration <= 0 || end.Duration > took || end.Waited < 0 || end.Waited > end.Duration {
		t.Errorf("%s: took %v, the observer is told %v, waiting for %v", test.name, took, end.Duration, end.Waited)
	}
	if test.order[0] == "waiting" && end.Waited == 0 {
		t.Errorf("%s: waited for no time", test.name)
	}
	if replayed := end.Outcome == idem.OutcomeReplayed; !replayed && end.Age != 0 || replayed && (end.Age <= 0 || end.Age > time.Minute) {
		t.Errorf("%s: age %v", test.name, end.Age)
	}
	for i, event := range l.events {
		if event.Event == idem.EventRetried && (event.Attempt != i+1 || event.Cause != idem.CauseConflict || !errors.Is(event.Err, serializationFailure)) {
			t.Errorf("%s: event %+v", test.name, event)
		}
	}
}

func TestObserverSeesWhenFnBeginsAndWhenItsResponseIsRecorded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	for name, test := range map[string]struct {
		end  []error // errors of the runs
		want []string
	}{
		"executed": {[]error{nil}, []string{"executing", "recording", "executed"}},
		"rejected": {[]error{idem.Reject(ok)}, []string{"executing", "recording", "rejected"}},
		"failed":   {[]error{errBusiness}, []string{"executing", "failed"}},
		"rerun":    {[]error{serializationFailure, nil}, []string{"executing", "retried", "executing", "recording", "executed"}},
	} {
		for _, joined := range []bool{false, true} {
			if joined && name == "rerun" { // the caller of a joined call does the rerun itself
				continue
			}
			key, runs := fmt.Sprint(name, joined), 0
			o := &log{t: t}
			fn := func(tx pgx.Tx) (idem.Response, error) {
				if last := o.stages[len(o.stages)-1]; last != "executing" {
					t.Errorf("%s: fn runs after %q", name, last)
				}
				runs++
				return ok, test.end[runs-1]
			}
			if joined {
				tx := l.begin(ctx)
				idem.DoTx(ctx, tx, scope, key, hashA, fn, idem.WithObserver(o))
				tx.Rollback(ctx)
			} else {
				idemDo(ctx, l.pool, scope, key, hashA, fn, idem.WithObserver(o))
			}
			if diff := cmp.Diff(test.want, o.stages); diff != "" {
				t.Errorf("%s, joined %t: (-want +seen)\n%s", name, joined, diff)
			}
		}
	}
}

func TestNameOfTheCallReachesItsObserver(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	o := &log{t: t}
	options := []idem.Option{idem.WithName("place-order"), idem.WithObserver(o)}
	idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"), options...)
	idem.DoTx(ctx, l.begin(ctx), scope, "k", hashA, l.charge("k"), options...)
	idem.DoJSON(ctx, l.pool, scope, "j", hashA, func(pgx.Tx) (int, error) { return 1, nil }, options...)
	idemDo(ctx, nil, "", "", hashA, nil, options...) // refused, and still reported
	if len(o.starts) != 4 {
		t.Fatalf("%d calls were seen", len(o.starts))
	}
	for _, start := range o.starts {
		if start.Name != "place-order" {
			t.Errorf("%+v", start)
		}
	}
}

// teller is an observer that appends each call of its methods to said, under its own name.
type teller struct {
	name string
	said *[]string
}

type tellerKey struct{}

func (o teller) say(what string, ctx context.Context) {
	heard, _ := ctx.Value(tellerKey{}).(string)
	*o.said = append(*o.said, o.name+" "+what+" "+heard)
}

func (o teller) TraceStart(ctx context.Context, _ idem.TraceStartData) context.Context {
	o.say("start", ctx)
	heard, _ := ctx.Value(tellerKey{}).(string)
	return context.WithValue(ctx, tellerKey{}, heard+o.name)
}

func (o teller) TraceEvent(ctx context.Context, data idem.TraceEventData) {
	o.say(string(data.Event), ctx)
}
func (o teller) TraceEnd(ctx context.Context, data idem.TraceEndData) {
	o.say(string(data.Outcome), ctx)
}

func TestSeveralObserversEachSeeTheCallAndTheContextOfAll(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	var said []string
	a, b, c := teller{"a", &said}, teller{"b", &said}, teller{"c", &said}
	want := []string{"a start ", "b start a", "c start ab",
		"a executing abc", "b executing abc", "c executing abc", "a recording abc", "b recording abc", "c recording abc",
		"c executed abc", "b executed abc", "a executed abc"}
	for i, options := range [][]idem.Option{
		{idem.WithObserver(a), idem.WithObserver(b), idem.WithObserver(c)},
		{idem.WithObserver(nil), idem.WithObserver(idem.Observers(a, nil, b)), idem.WithObserver(nil), idem.WithObserver(c)},
		{idem.WithObserver(a), idem.WithObserver(idem.Observers(b, c))},
	} {
		said = nil
		if _, err := idemDo(context.Background(), l.pool, scope, fmt.Sprint("k", i), hashA, answer(ok), options...); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, said); diff != "" {
			t.Errorf("%d: (-want +said)\n%s", i, diff)
		}
	}
	if idem.Observers() != nil || idem.Observers(nil, nil) != nil {
		t.Error("an observer of none is not nil")
	}
}

func TestObserverSeesJoinedCalls(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	busy := l.hold(t, "busy", hashA, nil)
	tx := l.begin(ctx)
	for _, test := range []struct {
		outcome  string
		key      string
		hash     idem.Hash
		end      error
		attempts int
	}{
		{"executed", "k", hashA, nil, 1},
		{"replayed", "k", hashA, nil, 0},
		{"mismatch", "k", hashB, nil, 0},
		{"failed", "f", hashA, errBusiness, 1},
		{"failed", "f", hashA, serializationFailure, 1},
		{"rejected", "f", hashA, idem.Reject(ok), 1},
		{"in_progress", "busy", hashA, nil, 0},
	} {
		o := &log{t: t}
		begun := time.Now()
		res, err := idem.DoTx(ctx, tx, scope, test.key, test.hash, func(tx pgx.Tx) (idem.Response, error) {
			resp, err := l.charge(test.key)(tx)
			return resp, errors.Join(err, test.end)
		}, idem.WithObserver(o))
		o.check(observed{name: "joined " + test.outcome, order: []string{test.outcome}, attempts: test.attempts}, true, res, err, time.Since(begun))
	}
	busy.release()
	busy.wait(t)
}

func TestObserverSeesPanicAndGoexit(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	tx := l.begin(ctx)
	for _, how := range []string{"panic", "Goexit"} {
		fn := func(tx pgx.Tx) (idem.Response, error) { endings[how](tx); return ok, nil }
		for name, call := range map[string]func(idem.Option){
			"Do":   func(o idem.Option) { idemDo(ctx, l.pool, scope, how, hashA, fn, o) },
			"DoTx": func(o idem.Option) { idem.DoTx(ctx, tx, scope, how, hashA, fn, o) },
			"DoJSON": func(o idem.Option) {
				idem.DoJSON(ctx, l.pool, scope, how, hashA, func(tx pgx.Tx) (int, error) { _, err := fn(tx); return 0, err }, o)
			},
		} {
			o := &log{t: t}
			escape(t, func() { call(idem.WithObserver(o)) })
			if diff := cmp.Diff([]string{"start", "panicked"}, o.order); diff != "" {
				t.Errorf("%s, %s: %s", name, how, diff)
				continue
			}
			if end := o.ends[0]; end.Err != nil || end.ExecutionID != "" || end.Attempts != 1 || end.Duration <= 0 {
				t.Errorf("%s, %s: %+v", name, how, end)
			}
		}
	}
}

func TestObserverSeesAFollowerWaitAndReplayOrTakeOver(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dsn := pgtest.DSN(t)
	l, other := ledgerOn(t, pgtest.Open(t, dsn)), pgtest.Open(t, dsn)
	for where, pool := range map[string]interface {
		Begin(context.Context) (pgx.Tx, error)
	}{"here": l.pool, "elsewhere": other} {
		for outcome, end := range map[string]error{"replayed": nil, "executed": errBusiness} {
			name := where + " " + outcome
			held := l.hold(t, name, hashA, end)
			o := &log{t: t, notify: make(chan string, 10)}
			var res idem.Result
			var err error
			var took time.Duration
			done := make(chan struct{})
			go func() {
				defer close(done)
				begun := time.Now()
				p := l.pool
				if pool != l.pool {
					p = other
				}
				res, err = idemDo(ctx, p, scope, name, hashA, l.charge(name), idem.WithObserver(o), idem.WithWait(limit))
				took = time.Since(begun)
			}()
			if event := await(t, "an event", o.notify); event != "waiting" {
				t.Errorf("%s: saw %q", name, event)
			}
			held.release()
			held.wait(t)
			await(t, "the follower", done)
			o.check(observed{name: name, order: []string{"waiting", outcome}, attempts: map[string]int{"executed": 1}[outcome]}, false, res, err, took)
		}
	}
}

// The database computes the age of a replay. No clock of the caller is involved.
func TestAgeOfAReplayIsByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	l.charged(ctx, "k")
	const shift = 100 * time.Hour
	if _, err := l.pool.Exec(ctx, "update idem.records set created_at = created_at - $1::interval, completed_at = completed_at - $1::interval", shift); err != nil {
		t.Fatal(err)
	}
	o := &log{t: t}
	if _, err := idemDo(ctx, l.pool, scope, "k", hashA, neverCalled(t), idem.WithObserver(o)); err != nil {
		t.Fatal(err)
	}
	if age := o.ends[0].Age; age < shift || age > shift+time.Minute {
		t.Errorf("age = %v, want a little more than %v", age, shift)
	}
}

// As documented, the context of TraceStart is passed to the other two methods and used for nothing
// else.
func TestContextOfTheObserverIsUsedForNothingElse(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	over, end := context.WithCancel(context.Background())
	end()
	o := &log{t: t, context: func(context.Context) context.Context { return over }}
	if _, err := idemDo(context.Background(), l.pool, scope, "do", hashA, l.charge("do"), idem.WithObserver(o)); err != nil {
		t.Errorf("Do: the observer's context ended the call: %v", err)
	}
	err := pgx.BeginFunc(context.Background(), l.pool, func(tx pgx.Tx) error {
		_, err := idem.DoTx(context.Background(), tx, scope, "dotx", hashA, l.charge("dotx"), idem.WithObserver(o))
		return err
	})
	if err != nil {
		t.Errorf("DoTx: the observer's context ended the call: %v", err)
	}
	o = &log{t: t, context: func(context.Context) context.Context { return context.Background() }}
	if _, err := idemDo(over, l.pool, scope, "k", hashA, neverCalled(t), idem.WithObserver(o)); !errors.Is(err, context.Canceled) {
		t.Errorf("the observer's context kept a call going whose own had ended: %v", err)
	}
}

func TestObserverNeverSeesAKeyInFull(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	for _, key := range []string{"secret", "secret-key-0123456789", "sekret\x00key", "sekret\xffkey" + strings.Repeat("x", 20), strings.Repeat("😀", 4), strings.Repeat("k", 300)} {
		o := &log{t: t}
		observer := idem.WithObserver(o)
		duplicate := func(tx pgx.Tx) (idem.Response, error) {
			_, err := tx.Exec(ctx, "insert into idem.records select * from idem.records")
			return ok, err
		}
		for _, call := range []func(){
			func() { idemDo(ctx, l.pool, scope, key, hashA, duplicate, observer) },
			func() {
				idemDo(ctx, l.pool, scope, key, hashA, func(pgx.Tx) (idem.Response, error) { return ok, serializationFailure }, observer)
			},
			func() {
				idemDo(ctx, l.pool, scope, key, hashA, func(pgx.Tx) (idem.Response, error) {
					idemDo(ctx, l.pool, scope, key, hashA, duplicate, observer, idem.WithWait(0))
					return ok, nil
				}, observer)
			},
			func() { idemDo(ctx, l.pool, scope, key, hashA, duplicate, observer) },
			func() { idemDo(ctx, l.pool, scope, key, hashB, duplicate, observer) },
			func() {
				l.pool.Exec(ctx, "update idem.records set state = 'processing', completed_at = null")
				idemDo(ctx, l.pool, scope, key, hashA, duplicate, observer)
			},
			func() {
				tx := l.begin(ctx)
				defer tx.Rollback(ctx)
				idem.DoTx(ctx, tx, scope, key, hashB, duplicate, observer)
			},
		} {
			call()
		}
		if len(o.ends) < 7 || len(o.ends) != len(o.starts) {
			t.Errorf("%d starts, %d ends", len(o.starts), len(o.ends))
		}
		for _, seen := range []any{o.starts, o.events, o.ends} {
			for i := range reflect.ValueOf(seen).Len() {
				data := reflect.ValueOf(seen).Index(i).Interface()
				wantAbridged(t, key, data)
				for _, secret := range []string{fmt.Sprintf("%x", hashA[:]), fmt.Sprint(hashA[:]), string(ok.Body) + `"`} {
					if text := fmt.Sprintf("%+v", data); strings.Contains(text, secret) {
						t.Errorf("%s holds %q", text, secret)
					}
				}
			}
		}
	}
}

func TestEveryCallEndsForItsObserverExactlyOnceUnderContention(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	o := &log{t: t}
	var calls sync.WaitGroup
	const n = 64
	for i := range n {
		key := fmt.Sprint("k", i%4)
		calls.Go(func() {
			idemDo(ctx, l.pool, scope, key, hashA, l.charge(key), idem.WithObserver(o), idem.WithWait(limit))
		})
	}
	calls.Wait()
	outcomes := map[idem.Outcome]int{}
	for _, end := range o.ends {
		outcomes[end.Outcome]++
	}
	if diff := cmp.Diff(map[idem.Outcome]int{idem.OutcomeExecuted: 4, idem.OutcomeReplayed: n - 4}, outcomes); diff != "" || len(o.starts) != n {
		t.Errorf("%d starts, outcomes %s", len(o.starts), diff)
	}
}

// silent is an observer that does nothing.
type silent struct{}

func (silent) TraceStart(ctx context.Context, _ idem.TraceStartData) context.Context { return ctx }
func (silent) TraceEvent(context.Context, idem.TraceEventData)                       {}
func (silent) TraceEnd(context.Context, idem.TraceEndData)                           {}

// The test counts allocations while nothing else runs, so it is not parallel.
func TestNothingIsPreparedForAnObserverThatIsNotThere(t *testing.T) {
	ctx := context.Background()
	allocs := func(opts ...idem.Option) float64 {
		return testing.AllocsPerRun(100, func() {
			idemDo(ctx, nil, scope, "a key of some length", hashA, func(pgx.Tx) (idem.Response, error) { return ok, nil }, opts...)
		})
	}
	none, null, observer := allocs(), allocs(idem.WithObserver(nil)), allocs(idem.WithObserver(silent{}))
	if none != null || none >= observer {
		t.Errorf("allocations: %v without the option, %v with a nil observer, %v with a silent one", none, null, observer)
	}
}
