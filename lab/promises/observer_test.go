package promises_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

// observed is a call with the events that are expected of it.
type observed struct {
	name     string
	call     func(o idem.Option) (idem.Result, error)
	order    []string // events except stages
	attempts int
}

func TestObserver_SeesEveryOutcome(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	busy := l.hold(t, "busy", hashA, nil)
	defer busy.release()
	do := func(key string, hash idem.Hash, fn func(pgx.Tx) (idem.Response, error), opts ...idem.Option) func(idem.Option) (idem.Result, error) {
		return func(o idem.Option) (idem.Result, error) {
			return idemDo(ctx, l.pool, scope, key, hash, fn, append(opts, o)...)
		}
	}
	tx := l.begin(ctx)
	joined := func(key string, hash idem.Hash, end error) func(o idem.Option) (idem.Result, error) {
		return func(o idem.Option) (idem.Result, error) {
			return idem.DoTx(ctx, tx, scope, key, hash, l.ending(key, ok, end), o)
		}
	}
	failures := 0
	for _, test := range []observed{
		{"executed", do("k", hashA, l.charge("k")), []string{"executed"}, 1},
		{"replayed", do("k", hashA, l.charge("k")), []string{"replayed"}, 0},
		{"mismatch", do("k", hashB, l.charge("k")), []string{"mismatch"}, 0},
		{"rejected", do("r", hashA, l.ending("r", ok, idem.Reject(ok))), []string{"rejected"}, 1},
		{"rejected, replayed", do("r", hashA, l.charge("r")), []string{"replayed"}, 0},
		{"failed", do("f", hashA, l.ending("f", ok, errBusiness)), []string{"failed"}, 1},
		{"ended", do("f", hashA, func(tx pgx.Tx) (idem.Response, error) { tx.Commit(ctx); return ok, nil }), []string{"failed"}, 1},
		{"too large", do("f", hashA, l.charge("f"), idem.WithMaxResponse(0)), []string{"failed"}, 1},
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
		{"retried in vain", do("vain", hashA, l.failing("vain", serializationFailure), idem.WithRetries(2)), []string{"retried", "retried", "failed"}, 3},
		{"DoJSON", func(o idem.Option) (idem.Result, error) {
			_, res, err := idem.DoJSON(ctx, l.pool, scope, "json", hashA, func(pgx.Tx) (int, error) { return 1, nil }, o)
			return res, err
		}, []string{"executed"}, 1},
		{"joined, executed", joined("j", hashA, nil), []string{"executed"}, 1},
		{"joined, replayed", joined("j", hashA, nil), []string{"replayed"}, 0},
		{"joined, mismatch", joined("j", hashB, nil), []string{"mismatch"}, 0},
		{"joined, failed", joined("f", hashA, serializationFailure), []string{"failed"}, 1},
		{"joined, rejected", joined("f", hashA, idem.Reject(ok)), []string{"rejected"}, 1},
		{"joined, in progress", joined("busy", hashA, nil), []string{"in_progress"}, 0},
	} {
		o := newWatch()
		begun := time.Now()
		res, err := test.call(idem.WithObserver(o))
		o.check(t, test, strings.HasPrefix(test.name, "joined"), res, err, time.Since(begun))
	}
}

// check compares the recorded events of one call with what the call returned.
func (w *watch) check(t *testing.T, test observed, joined bool, res idem.Result, err error, took time.Duration) {
	t.Helper()
	if diff := cmp.Diff(test.order, w.all()); diff != "" || len(w.starts) != 1 || w.foreign > 0 {
		t.Errorf("%s: (-want +seen)\n%s", test.name, diff)
		return
	}
	if start := w.starts[0]; start.Joined != joined || start.Scope != scope {
		t.Errorf("%s: %+v", test.name, start)
	}
	end := w.ends[0]
	if end.Err != err || end.Cause != idem.CauseOf(err) || end.ExecutionID != res.ExecutionID || end.Attempts != test.attempts {
		t.Errorf("%s: ended with %+v; the call returned %+v, %v after %d attempts", test.name, end, res, err, test.attempts)
	}
	if end.Duration <= 0 || end.Duration > took || end.Waited < 0 || end.Waited > end.Duration {
		t.Errorf("%s: took %v, the observer got %v, waiting for %v", test.name, took, end.Duration, end.Waited)
	}
	if test.order[0] == "waiting" && end.Waited == 0 {
		t.Errorf("%s: waited for no time", test.name)
	}
	if replayed := end.Outcome == idem.OutcomeReplayed; !replayed && end.Age != 0 || replayed && (end.Age <= 0 || end.Age > time.Minute) {
		t.Errorf("%s: age %v", test.name, end.Age)
	}
	for i, event := range w.events {
		if event.Event == idem.EventRetried && (event.Attempt != i+1 || event.Cause != idem.CauseConflict || !errors.Is(event.Err, serializationFailure)) {
			t.Errorf("%s: event %+v", test.name, event)
		}
	}
}

func TestObserver_SeesTheStagesOfACall(t *testing.T) {
	t.Parallel()
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
			o := newWatch()
			fn := func(tx pgx.Tx) (idem.Response, error) {
				if last := o.stages[len(o.stages)-1]; last != "executing" {
					t.Errorf("%s: fn runs after %q", name, last)
				}
				runs++
				return ok, test.end[runs-1]
			}
			if joined {
				l.undone(key, hashA, fn, idem.WithObserver(o))
			} else {
				idemDo(ctx, l.pool, scope, key, hashA, fn, idem.WithObserver(o))
			}
			wantSame(t, test.want, o.stages)
		}
	}
}

func TestObserver_SeveralSeeTheCall(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	a, b, c := newWatch(), newWatch(), newWatch()
	options := []idem.Option{idem.WithObserver(nil), idem.WithObserver(idem.Observers(a, nil, b)), idem.WithObserver(c)}
	noError(t, errOf(idemDo(ctx, l.pool, scope, "k", hashA, answer(ok), options...)))
	for _, o := range []*watch{a, b, c} { // each sees its own context
		if diff := cmp.Diff([]string{"executing", "recording", "executed"}, o.stages); diff != "" || len(o.starts) != 1 || o.foreign > 0 {
			t.Errorf("(-want +seen)\n%s", diff)
		}
	}
	if idem.Observers() != nil || idem.Observers(nil, nil) != nil {
		t.Error("an observer of none is not nil")
	}
}

func TestObserver_SeesPanicAndGoexit(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	tx := l.begin(ctx)
	for _, how := range []string{"panic", "Goexit"} {
		fn := func(tx pgx.Tx) (idem.Response, error) { endings[how](tx); return ok, nil }
		for name, call := range map[string]func(idem.Option){
			"Do":   func(o idem.Option) { idemDo(ctx, l.pool, scope, how, hashA, fn, o) },
			"DoTx": func(o idem.Option) { idem.DoTx(ctx, tx, scope, how, hashA, fn, o) },
		} {
			o := newWatch()
			escape(t, func() { call(idem.WithObserver(o)) })
			if diff := cmp.Diff([]string{"panicked"}, o.all()); diff != "" {
				t.Errorf("%s, %s: %s", name, how, diff)
				continue
			}
			if end := o.ends[0]; end.Err != nil || end.ExecutionID != "" || end.Attempts != 1 || end.Duration <= 0 {
				t.Errorf("%s, %s: %+v", name, how, end)
			}
		}
	}
}

func TestObserver_NeverSeesAKeyInFull(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for _, key := range []string{"secret", "secret-key-0123456789", "sekret\x00key", "sekret\xffkey" + strings.Repeat("x", 20), strings.Repeat("😀", 4), strings.Repeat("k", 300)} {
		o := newWatch()
		observer := idem.WithObserver(o)
		duplicate := func(tx pgx.Tx) (idem.Response, error) {
			_, err := tx.Exec(ctx, "insert into idem.records select * from idem.records")
			return ok, err
		}
		nested := func(pgx.Tx) (idem.Response, error) {
			idemDo(ctx, l.pool, scope, key, hashA, duplicate, observer, idem.WithWait(0))
			return ok, nil
		}
		idemDo(ctx, l.pool, scope, key, hashA, duplicate, observer)
		idemDo(ctx, l.pool, scope, key, hashA, l.failing(key, serializationFailure), observer)
		idemDo(ctx, l.pool, scope, key, hashA, nested, observer)
		idemDo(ctx, l.pool, scope, key, hashA, duplicate, observer)
		idemDo(ctx, l.pool, scope, key, hashB, duplicate, observer)
		execute(t, l.pool, "update idem.records set state = 'processing', completed_at = null")
		idemDo(ctx, l.pool, scope, key, hashA, duplicate, observer)
		l.undone(key, hashB, duplicate, observer)
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

// journal is the output of a logger. It is safe for concurrent use.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// lines returns level, message and attributes of the lines since the last call. Attributes that
// differ between runs are shown by name only.
func (j *journal) lines(t *testing.T) []string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(j.text.String()) {
		var logged map[string]any
		noError(t, json.Unmarshal([]byte(line), &logged))
		head := fmt.Sprint(logged["level"], " ", logged["msg"])
		for _, name := range []string{"time", "level", "msg"} {
			delete(logged, name)
		}
		for _, name := range []string{"duration", "waited", "age", "execution_id"} {
			if _, ok := logged[name]; ok {
				logged[name] = "…"
			}
		}
		rest, _ := json.Marshal(logged)
		lines = append(lines, head+" "+strings.ReplaceAll(string(rest), `"`, ""))
	}
	j.text.Reset()
	return lines
}

func TestLogObserver_LogsEachCallAtItsLevel(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	busy := l.hold(t, "busy", hashA, nil)
	defer busy.release()
	over, end := context.WithCancel(ctx)
	end()
	var j journal
	observer := idem.WithObserver(idem.LogObserver(j.logger()))
	for _, test := range []struct {
		call func()
		want []string
	}{
		{func() { idemDo(ctx, l.pool, scope, "k", hashA, answer(ok), observer, idem.WithName("n")) },
			[]string{"DEBUG idem: call executed {attempts:1,duration:…,execution_id:…,key:k…(1),name:n}"}},
		{func() { idemDo(ctx, l.pool, scope, "k", hashA, answer(ok), observer) },
			[]string{"INFO idem: call replayed {age:…,attempts:0,duration:…,execution_id:…,key:k…(1)}"}},
		{func() { l.undone("k", hashB, answer(ok), observer) },
			[]string{"WARN idem: call mismatch {attempts:0,cause:mismatch,duration:…,joined:true,key:k…(1)}"}},
		{func() { idemDo(ctx, l.pool, scope, "r", hashA, l.ending("r", ok, idem.Reject(ok)), observer) },
			[]string{"INFO idem: call rejected {attempts:1,duration:…,execution_id:…,key:r…(1)}"}},
		{func() {
			idemDo(ctx, l.pool, scope, "busy", hashA, answer(ok), observer, idem.WithWait(50*time.Millisecond))
		},
			[]string{"DEBUG idem: call waiting {attempt:0,key:bu…(4)}",
				"WARN idem: call in_progress {attempts:0,cause:in_progress,duration:…,key:bu…(4),waited:…}"}},
		{func() {
			idemDo(ctx, l.pool, scope, "again", hashA, l.failing("again", serializationFailure), observer, idem.WithRetries(1))
		}, []string{"INFO idem: call retried {attempt:1,cause:conflict,key:ag…(5)}",
			"WARN idem: call failed {attempts:2,cause:conflict,duration:…,key:ag…(5)}"}},
		{func() { idemDo(over, l.pool, scope, "over", hashA, answer(ok), observer) },
			[]string{"INFO idem: call failed {attempts:0,cause:canceled,duration:…,key:ov…(4)}"}},
		{func() {
			escape(t, func() {
				idemDo(ctx, l.pool, scope, "p", hashA, func(pgx.Tx) (idem.Response, error) { panic("!") }, observer)
			})
		}, []string{"ERROR idem: call panicked {attempts:1,duration:…,key:p…(1)}"}},
	} {
		test.call()
		wantSame(t, test.want, j.lines(t))
	}
	trace := idem.LogObserver(j.logger())
	traced := trace.TraceStart(ctx, idem.TraceStartData{Key: "…(1)"})
	for _, event := range []idem.Event{idem.EventOutcomeUnknown, idem.EventResolvedCommitted, idem.EventResolvedRolledBack} {
		trace.TraceEvent(traced, idem.TraceEventData{Event: event})
	}
	trace.TraceEnd(traced, idem.TraceEndData{Outcome: idem.OutcomeUnknown, Cause: idem.CauseOutcomeUnknown})
	trace.TraceEnd(traced, idem.TraceEndData{Outcome: idem.OutcomeFailed, Cause: idem.CauseUnreadable})
	var levels []string
	for _, line := range j.lines(t) {
		level, _, _ := strings.Cut(line, " {")
		levels = append(levels, level)
	}
	want := []string{"WARN idem: call outcome_unknown", "INFO idem: call resolved_committed",
		"INFO idem: call resolved_rolled_back", "ERROR idem: call unknown", "ERROR idem: call failed"}
	wantSame(t, want, levels)
}

// Not parallel, because the default logger is global.
func TestLogObserver_UsesTheDefaultLoggerOfTheMoment(t *testing.T) {
	observer := idem.WithObserver(idem.LogObserver(nil))
	defer slog.SetDefault(slog.Default())
	var j journal
	slog.SetDefault(j.logger())
	idem.Do(ctx, nil, scope, "k", hashA, answer(ok), observer)
	if lines := j.lines(t); len(lines) != 1 || !strings.HasPrefix(lines[0], "WARN idem: call failed") {
		t.Errorf("logged %q", lines)
	}
}

func TestLogObserver_LogsNothingPersonal(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	const key, who, what = "key-of-Ada-Lovelace", "tenant-Ada", "body-of-Ada"
	var j journal
	observer := idem.WithObserver(idem.LogObserver(j.logger()))
	for _, hash := range []idem.Hash{hashA, hashB} {
		for _, end := range []error{errors.New("no money left for Ada"), &idem.OutcomeUnknownError{Err: errors.New("Ada")}, nil} {
			fn := func(tx pgx.Tx) (idem.Response, error) {
				var err error
				if end != nil {
					_, err = tx.Exec(ctx, "select 'Ada'::int")
				}
				return idem.Response{Status: 201, Header: header{"H": {what}}, Body: []byte(what)}, errors.Join(end, err)
			}
			idemDo(ctx, l.pool, who, key, hash, fn, observer, idem.WithRetries(1))
			l.undone(key, hash, fn, observer)
		}
	}
	text := j.text.String()
	if n := strings.Count(text, "\n"); n < 10 || strings.Contains(text, "Ada") || !strings.Contains(text, `key-…(19)`) {
		t.Errorf("%d lines are logged, or they show her, or do not tell the calls apart:\n%s", n, text)
	}
}
