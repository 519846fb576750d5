package idemotel_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/codes"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemotel"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/outbox"
)

var conflict = &pgconn.PgError{Code: "40001"}

func TestObserver_CountsEveryOutcome(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, pool := newSeen(t), pgtest.New(t)
	observed := []idem.Option{idem.WithObserver(s.observer()), idem.WithName("place-order")}
	do := func(key string, hash idem.Hash, fn func(pgx.Tx) (idem.Response, error), opts ...idem.Option) {
		idem.Do(ctx, pool, "s", key, hash, fn, append(opts, observed...)...)
	}
	do("k", hashA, answer(ok, nil))
	do("k", hashA, answer(ok, nil))
	do("k", hashA, answer(ok, nil))
	do("k", hashB, answer(ok, nil))
	do("r", hashA, answer(ok, idem.Reject(ok)))
	do("f", hashA, answer(ok, errors.New("no more teapots")))
	do("c", hashA, answer(ok, conflict), idem.WithRetries(2))
	do("held", hashA, func(pgx.Tx) (idem.Response, error) {
		do("held", hashA, answer(ok, nil), idem.WithWait(50*time.Millisecond))
		return ok, nil
	})
	func() {
		defer func() { recover() }()
		do("p", hashA, func(pgx.Tx) (idem.Response, error) { panic("!") })
	}()
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := idem.DoTx(ctx, tx, "s", "tx", hashA, answer(ok, nil), observed[0])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		"idem.call.duration idem.kind=do idem.name=place-order idem.outcome=executed":                           2,
		"idem.call.duration idem.kind=do idem.name=place-order idem.outcome=replayed":                           2,
		"idem.call.duration error.type=mismatch idem.kind=do idem.name=place-order idem.outcome=mismatch":       1,
		"idem.call.duration idem.kind=do idem.name=place-order idem.outcome=rejected":                           1,
		"idem.call.duration error.type=other idem.kind=do idem.name=place-order idem.outcome=failed":            1,
		"idem.call.duration error.type=conflict idem.kind=do idem.name=place-order idem.outcome=failed":         1,
		"idem.call.duration error.type=in_progress idem.kind=do idem.name=place-order idem.outcome=in_progress": 1,
		"idem.call.duration idem.kind=do idem.name=place-order idem.outcome=panicked":                           1,
		"idem.call.duration idem.kind=do_tx idem.outcome=executed":                                              1,
		"idem.wait.duration idem.name=place-order idem.outcome=in_progress":                                     1,
		"idem.replay.age idem.name=place-order":                                                                 2,
		"idem.retries error.type=conflict idem.name=place-order":                                                2,
	}
	for _, name := range []string{"idem.name=place-order ", ""} {
		want[strings.TrimSpace("idem.replay.unreadable "+name)] = 0
		for _, resolution := range []string{"committed", "rolled_back", "unresolved"} {
			want["idem.commit.unknown "+name+"idem.resolution="+resolution] = 0
		}
	}
	if diff := cmp.Diff(want, s.values()); diff != "" {
		t.Errorf("(-want +collected)\n%s", diff)
	}
}

func TestObserver_CountsUnknownCommitsByResolution(t *testing.T) {
	t.Parallel()
	s := newSeen(t)
	o := s.observer()
	for _, story := range [][]idem.Event{
		{idem.EventExecuting, idem.EventRecording, idem.EventOutcomeUnknown, idem.EventResolvedCommitted},
		{idem.EventExecuting, idem.EventRecording, idem.EventOutcomeUnknown, idem.EventResolvedRolledBack, idem.EventRetried, idem.EventExecuting},
		{idem.EventExecuting, idem.EventRecording, idem.EventOutcomeUnknown},
		{idem.EventExecuting, idem.EventRecording},
	} {
		ctx := o.TraceStart(context.Background(), idem.TraceStartData{Key: "…(1)"})
		for _, event := range story {
			o.TraceEvent(ctx, idem.TraceEventData{Event: event, Cause: idem.CauseConnectionLost})
		}
		o.TraceEnd(ctx, idem.TraceEndData{Outcome: idem.OutcomeExecuted})
	}
	keyless := o.TraceStart(context.Background(), idem.TraceStartData{})
	o.TraceEnd(keyless, idem.TraceEndData{Outcome: idem.OutcomeUnknown})
	got := s.values()
	for resolution, n := range map[string]float64{"committed": 1, "rolled_back": 1, "unresolved": 2} {
		if name := "idem.commit.unknown idem.resolution=" + resolution; got[name] != n {
			t.Errorf("%s is %v, want %v", name, got[name], n)
		}
	}
}

// A counter must be exported as 0 before its first event. A burst between two collections is then
// visible as an increase.
func TestObserver_CountsUnreadableReplaysFromZero(t *testing.T) {
	t.Parallel()
	s := newSeen(t)
	o := s.observer()
	end := func(data idem.TraceEndData) {
		ctx := o.TraceStart(context.Background(), idem.TraceStartData{Name: "n", Key: "…(1)"})
		o.TraceEnd(ctx, data)
	}
	counted := func() float64 {
		n, shown := s.values()["idem.replay.unreadable idem.name=n"]
		if !shown {
			t.Error("it is not shown")
		}
		return n
	}
	end(idem.TraceEndData{Outcome: idem.OutcomeExecuted})
	if n := counted(); n != 0 {
		t.Errorf("%v before the first, want 0", n)
	}
	for range 3 {
		end(idem.TraceEndData{Outcome: idem.OutcomeFailed, Cause: idem.CauseUnreadable})
	}
	if n := counted(); n != 3 {
		t.Errorf("%v, want 3", n)
	}
}

func TestSpan_HasAChildForEachStage(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool := pgtest.New(t)
	for name, test := range map[string]struct {
		call func(key string, opts ...idem.Option)
		want []string
	}{
		"executed": {func(key string, opts ...idem.Option) {
			idem.Do(ctx, pool, "s", key, hashA, answer(ok, nil), opts...)
		}, []string{"idem claim", "idem fn", "idem commit"}},
		"joined": {func(key string, opts ...idem.Option) {
			pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				_, err := idem.DoTx(ctx, tx, "s", key, hashA, answer(ok, nil), opts...)
				return err
			})
		}, []string{"idem claim", "idem fn", "idem record"}},
		"run again": {func(key string, opts ...idem.Option) {
			idem.Do(ctx, pool, "s", key, hashA, answer(ok, conflict), append(opts, idem.WithRetries(1))...)
		}, []string{"idem claim", "idem fn", "idem claim", "idem fn"}},
		"in progress": {func(key string, opts ...idem.Option) {
			idem.Do(ctx, pool, "s", key, hashA, func(pgx.Tx) (idem.Response, error) {
				idem.Do(ctx, pool, "s", key, hashA, answer(ok, nil), append(opts, idem.WithWait(50*time.Millisecond))...)
				return ok, nil
			})
		}, []string{"idem claim", "idem wait"}},
	} {
		s := newSeen(t)
		test.call(name, idem.WithObserver(s.observer()), idem.WithName("n"))
		parents := s.ended("idem n")
		if len(parents) != 1 || parents[0].Parent().IsValid() {
			t.Fatalf("%s: %d spans of the call", name, len(parents))
		}
		var stages []string
		var last time.Time
		for _, span := range s.spans.Ended() {
			if span.Parent().SpanID() != parents[0].SpanContext().SpanID() {
				continue
			}
			stages = append(stages, span.Name())
			if span.StartTime().Before(last) || span.EndTime().After(parents[0].EndTime()) {
				t.Errorf("%s: %s is not after the one before it, or not within the call", name, span.Name())
			}
			last = span.EndTime()
		}
		if diff := cmp.Diff(test.want, stages); diff != "" {
			t.Errorf("%s: (-want +ended)\n%s", name, diff)
		}
		if started := len(s.spans.Started()); started != len(s.spans.Ended()) {
			t.Errorf("%s: %d spans were begun, %d ended", name, started, len(s.spans.Ended()))
		}
	}
}

func TestObserver_LinksAReplayToItsExecution(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, elsewhere, pool := newSeen(t), newSeen(t), pgtest.New(t)
	var operation string
	first := s.observer()
	for _, o := range []idem.Observer{first, first, elsewhere.observer()} {
		res, err := idem.Do(ctx, pool, "s", "k", hashA, answer(ok, nil), idem.WithObserver(o))
		if err != nil {
			t.Fatal(err)
		}
		operation = res.ExecutionID
	}
	spans := s.ended("idem")
	execution, here := spans[0], spans[1]
	if attributeOf(execution, "idem.execution.id") != operation || len(execution.Links()) != 0 {
		t.Errorf("the execution: %v, links %v", execution.Attributes(), execution.Links())
	}
	links := append(here.Links(), elsewhere.ended("idem")[0].Links()...)
	if len(links) != 2 {
		t.Fatalf("links %v", links)
	}
	for _, link := range links {
		if got := attributes(link.Attributes); got != "idem.execution.id="+operation {
			t.Errorf("the link says %q", got)
		}
	}
	if !links[0].SpanContext.Equal(execution.SpanContext()) {
		t.Error("the link of a replay by the same observer does not lead to the span of the execution")
	}
	if links[1].SpanContext.IsValid() {
		t.Error("the link of a replay elsewhere leads to some other span")
	}
}

func TestSpan_RefusalsAreNoErrors(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[idem.Outcome]codes.Code{
		idem.OutcomeExecuted: codes.Unset, idem.OutcomeReplayed: codes.Unset, idem.OutcomeRejected: codes.Unset,
		idem.OutcomeMismatch: codes.Unset, idem.OutcomeInProgress: codes.Unset,
		idem.OutcomeFailed: codes.Error, idem.OutcomeUnknown: codes.Error, idem.OutcomePanicked: codes.Error,
	} {
		s := newSeen(t)
		o := s.observer()
		o.TraceEnd(o.TraceStart(context.Background(), idem.TraceStartData{Key: "k"}), idem.TraceEndData{Outcome: outcome})
		if got := s.ended("idem")[0].Status().Code; got != want {
			t.Errorf("%s: %v", outcome, got)
		}
	}
}

// A service and a single call may each have an observer.
func TestObservers_OfACallAllReport(t *testing.T) {
	t.Parallel()
	outer, inner := newSeen(t), newSeen(t)
	pool := pgtest.New(t)
	both := []idem.Option{idem.WithObserver(outer.observer()), idem.WithObserver(inner.observer())}
	if _, err := idem.Do(t.Context(), pool, "s", "k", hashA, answer(ok, nil), both...); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*seen{outer, inner} {
		if spans := s.spans.Ended(); len(spans) != 4 || len(s.ended("idem")) != 1 || len(s.spans.Started()) != 4 {
			t.Errorf("%d spans have begun, %d of them ended, %d are of calls", len(s.spans.Started()), len(spans), len(s.ended("idem")))
		}
		if n := s.values()["idem.call.duration idem.kind=do idem.outcome=executed"]; n != 1 {
			t.Errorf("%v calls are counted: %v", n, s.values())
		}
	}
}

// The configuration of a service and a call may have the same observer.
func TestObserver_GivenTwiceReportsOnce(t *testing.T) {
	t.Parallel()
	s, pool := newSeen(t), pgtest.New(t)
	o := s.observer()
	again := []idem.Option{idem.WithObserver(o), idem.WithObserver(o), idem.WithObserver(o), idem.WithRetries(1)}
	if _, err := idem.Do(t.Context(), pool, "s", "k", hashA, answer(ok, conflict), again...); err == nil {
		t.Fatal("no conflict")
	}
	if spans := s.spans.Ended(); len(spans) != len(s.spans.Started()) || len(s.ended("idem")) != 1 || len(s.ended("idem fn")) != 2 {
		t.Errorf("%d spans have begun, %d of them ended", len(s.spans.Started()), len(spans))
	}
	for name, n := range s.values() {
		if (strings.HasPrefix(name, "idem.call.duration") || strings.HasPrefix(name, "idem.retries")) && n != 1 {
			t.Errorf("%s: %v", name, n)
		}
	}
}

// New returns a nil observer with an error, which a program may ignore.
func TestObserver_NilDoesNothing(t *testing.T) {
	t.Parallel()
	var none *idemotel.Observer
	if _, err := idem.Do(t.Context(), pgtest.New(t), "s", "k", hashA, answer(ok, nil), idem.WithObserver(none)); err != nil {
		t.Error(err)
	}
	o, err := idemotel.New(idemotel.WithMeterProvider(nil), idemotel.WithTracerProvider(nil))
	if err != nil {
		t.Fatal(err)
	}
	o.TraceEnd(o.TraceStart(t.Context(), idem.TraceStartData{Key: "k"}), idem.TraceEndData{})
}

func TestObserver_ExportsNothingPersonal(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, pool := newSeen(t), pgtest.New(t)
	gauges := s.watch(pool)
	defer gauges.Stop()
	observed := []idem.Option{idem.WithObserver(s.observer()), idem.WithName("place-order"), idem.WithRetries(1)}
	const scope, key, body = "tenant-Ada", "key-of-Ada-Lovelace", "body-of-Ada"
	for _, hash := range []idem.Hash{hashA, hashB} {
		for _, end := range []error{
			errors.New("no money left for Ada"), &idem.OutcomeUnknownError{Err: errors.New("Ada")},
			fmt.Errorf("Ada: %w", conflict), nil,
		} {
			fn := answer(idem.Response{Status: 201, Header: map[string][]string{"H": {body}}, Body: []byte(body)}, end)
			idem.Do(ctx, pool, scope, key, hash, fn, observed...)
			pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				idem.DoTx(ctx, tx, scope, key, hash, fn, observed[:2]...)
				return nil
			})
		}
	}
	calls := 0
	checkout := operation.Define("checkout", func(op *operation.Op, in string) (idem.Response, error) {
		_, err := operation.Tx(op, "reserve", func(pgx.Tx) (string, error) { return body, nil },
			operation.UndoTx(func(pgx.Tx, string) error { return errors.New("no way back for " + in) }))
		_, failed := operation.Tx(op, "reserve", func(pgx.Tx) (string, error) { return "", errors.New("no room for " + in) })
		_, declined := operation.Call(op, "charge", operation.Keyed(time.Hour), func(context.Context, string) (string, error) {
			if calls++; calls == 1 {
				return "", errors.New("no answer for " + in)
			}
			return "", operation.Final(errors.New("no money left for " + in))
		})
		return idem.Response{}, errors.Join(err, failed, declined)
	})
	checkout.Do(ctx, pool, scope, key+"-2", hashA, body, observed[0])
	relay(t, s, pool, outbox.Message{Topic: "topic-of-Ada", Key: key, Payload: []byte(body)})
	for range 2 {
		inbox.Handle(ctx, pool, "billing", inbox.Message{Source: "source-of-Ada", ID: key, Key: key, Payload: []byte(body)},
			func(pgx.Tx) error { return errors.New("no room for Ada") }, inbox.WithObserver(s.observer()), inbox.WithMaxAttempts(1))
	}
	var text string
	waiting.Until(t, "the gauges have figures", func() bool {
		text = fmt.Sprintf("%+v", s.collect())
		return strings.Contains(text, "idem.storage.size")
	})
	for _, span := range s.spans.Ended() {
		text += fmt.Sprintf("%s %+v %+v %+v %+v\n", span.Name(), span.Attributes(), span.Events(), span.Links(), span.Status())
	}
	if len(s.spans.Ended()) < 16 || len(s.ended("idem call")) != 2 || len(s.ended("idem undo")) != 1 || !strings.Contains(text, "place-order") || !strings.Contains(text, "billing") || !strings.Contains(text, "idem.outbox.messages") || !strings.Contains(text, "idem.storage.size") {
		t.Fatalf("the test sees too little:\n%s", text)
	}
	for _, secret := range []string{"Ada", "key-", scope, body, hex.EncodeToString(hashA[:]), fmt.Sprint(hashA[:])} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is exported:\n%s", secret, text)
		}
	}
}

func TestObserver_LimitsTheNamesOfCalls(t *testing.T) {
	t.Parallel()
	s := newSeen(t)
	o := s.observer()
	for i := range 250 {
		ctx := o.TraceStart(context.Background(), idem.TraceStartData{Name: fmt.Sprint("customer-", i%125), Key: "k"})
		o.TraceEnd(ctx, idem.TraceEndData{Outcome: idem.OutcomeExecuted})
	}
	values := s.values()
	if n := values["idem.call.duration idem.kind=do idem.name=_OTHER idem.outcome=executed"]; len(values) != 5*101 || n != 50 {
		t.Errorf("%d series, %v calls under _OTHER; want 505, 50", len(values), n)
	}
}
