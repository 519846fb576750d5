package idemotel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

func TestObserver_MeasuresStepsAndMakesSpans(t *testing.T) {
	t.Parallel()
	s, pool := newSeen(t), pgtest.New(t)
	attempts := 0
	d := operation.Define("checkout", func(op *operation.Op, _ int) (idem.Response, error) {
		for range 2 {
			release := operation.UndoTx(func(pgx.Tx, int) error { return nil })
			if _, err := operation.Tx(op, "reserve", func(pgx.Tx) (int, error) { return 0, nil }, release); err != nil {
				return idem.Response{}, err
			}
		}
		_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(context.Context, string) (int, error) {
			if attempts++; attempts == 1 {
				return 0, errors.New("secret")
			}
			return 0, operation.Final(errors.New("secret"))
		})
		return idem.Response{}, idem.Reject(idem.Response{Status: 402, Body: fmt.Append(nil, err)})
	})
	o := s.observer() // given twice, it counts once
	if _, err := d.Do(t.Context(), pool, "s", "k", hashA, 1, idem.WithObserver(idem.Observers(idem.LogObserver(nil), o, o))); err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for name, n := range s.values() {
		if strings.HasPrefix(name, "idem.step.") {
			got[name] = n
		}
	}
	want := map[string]float64{
		"idem.step.duration idem.name=checkout idem.outcome=done idem.step.kind=tx idem.step=reserve":                      2,
		"idem.step.duration error.type=other idem.name=checkout idem.outcome=unknown idem.step.kind=call idem.step=charge": 1,
		"idem.step.duration error.type=other idem.name=checkout idem.outcome=failed idem.step.kind=call idem.step=charge":  1,
		"idem.step.duration idem.name=checkout idem.outcome=done idem.step.kind=undo idem.step=reserve":                    2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +measured)\n%s", diff)
	}
	spans := []string{
		"idem tx reserve done Unset of the call, 36",
		"idem tx reserve done Unset of the call, 36",
		"idem call charge unknown Error of the call, 36",
		"idem call charge failed Unset of the call, 36",
		"idem undo reserve done Unset of the call, 36",
		"idem undo reserve done Unset of the call, 36",
	}
	if diff := cmp.Diff(spans, s.stepSpans("idem checkout")); diff != "" {
		t.Errorf("(-want +spans)\n%s", diff)
	}
}

// A Worker reports its steps to its observer.
func TestObserver_MeasuresStepsOfAWorker(t *testing.T) {
	t.Parallel()
	s, pool := newSeen(t), pgtest.New(t)
	d := operation.Define("checkout", func(op *operation.Op, _ int) (idem.Response, error) {
		_, err := operation.Tx(op, "reserve", func(pgx.Tx) (int, error) { return 0, nil })
		return idem.Response{}, err
	})
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := d.Start(t.Context(), tx, "s", "k", hashA, 1)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	config := operation.WorkerConfig{Options: []idem.Option{idem.WithObserver(s.observer())}}
	go func() { done <- operation.NewWorker(pool, config, d).Run(ctx) }()
	s.await("idem.step.duration idem.name=checkout idem.outcome=done idem.step.kind=tx idem.step=reserve")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"idem tx reserve done Unset no call's, 36"}, s.stepSpans("")); diff != "" {
		t.Errorf("(-want +spans)\n%s", diff)
	}
}

// stepSpans returns the spans of steps with their attributes, in order.
func (s *seen) stepSpans(parent string) (spans []string) {
	for _, span := range s.spans.Ended() {
		if attributeOf(span, "idem.step") == "" {
			continue
		}
		of := "no call's"
		for _, p := range s.ended(parent) {
			if p.SpanContext().SpanID() == span.Parent().SpanID() && span.StartTime().After(p.StartTime().Add(-time.Millisecond)) {
				of = "of the call"
			}
		}
		spans = append(spans, fmt.Sprint(span.Name(), " ", attributeOf(span, "idem.step"), " ", attributeOf(span, "idem.outcome"), " ",
			span.Status().Code, " ", of, ", ", len(attributeOf(span, "idem.operation.id"))))
	}
	return spans
}
