package idemotel_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
)

// stored returns the headers with which a message is in the outbox.
func stored(t *testing.T, s *seen, ctx context.Context, m outbox.Message) map[string]string {
	t.Helper()
	pool := pgtest.New(t)
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return outbox.Add(outbox.WithCarrier(ctx, s.observer()), tx, m) })
	if err != nil {
		t.Fatal(err)
	}
	var headers map[string]string
	if err := pool.QueryRow(ctx, `select coalesce(headers, '{}') from idem.outbox`).Scan(&headers); err != nil {
		t.Fatal(err)
	}
	return headers
}

func TestPropagation_FromAddToTheHandlerAndOn(t *testing.T) {
	t.Parallel()
	s, pool := newSeen(t), pgtest.New(t)
	ctx, request := s.tracers.Tracer("test").Start(t.Context(), "request")
	headers := stored(t, s, ctx, outbox.Message{Topic: "orders", Headers: map[string]string{"tenant": "7"}})
	if headers["tenant"] != "7" || headers["traceparent"] == "" {
		t.Fatalf("the headers are %v", headers)
	}
	var further trace.SpanContext
	_, err := inbox.Handle(t.Context(), pool, "billing", inbox.Message{Source: "orders", ID: "1", Headers: headers}, func(tx pgx.Tx) error {
		further = trace.SpanContextFromContext(inbox.Context(tx))
		return outbox.Add(inbox.Context(tx), tx, outbox.Message{Topic: "invoices"})
	}, inbox.WithObserver(s.observer()))
	if err != nil {
		t.Fatal(err)
	}
	request.End()
	if further.TraceID() != request.SpanContext().TraceID() || further.SpanID() == request.SpanContext().SpanID() {
		t.Errorf("the handler is in the trace %v, the request in %v", further, request.SpanContext())
	}
	span := theOnly(t, s.ended("idem handle"))
	if len(span.Links()) != 1 || span.Links()[0].SpanContext.SpanID() != request.SpanContext().SpanID() || span.Parent().SpanID() != request.SpanContext().SpanID() {
		t.Errorf("the span has the links %v and the parent %v", span.Links(), span.Parent())
	}
	var next string
	if err := pool.QueryRow(t.Context(), `select headers->>'traceparent' from idem.outbox`).Scan(&next); err != nil {
		t.Fatal(err)
	}
	if want := "00-" + further.TraceID().String() + "-" + further.SpanID().String() + "-01"; next != want {
		t.Errorf("what the handler adds has %q, want %q", next, want)
	}
}

func TestSpan_OfAHandlerLinksItsMessages(t *testing.T) {
	t.Parallel()
	s, pool := newSeen(t), pgtest.New(t)
	tracer := s.tracers.Tracer("test")
	var ms []inbox.Message
	for _, id := range []string{"1", "2"} {
		ctx, span := tracer.Start(t.Context(), "request")
		headers := map[string]string{}
		s.observer().Carry(ctx, headers)
		span.End()
		ms = append(ms, inbox.Message{Source: "orders", ID: id, Headers: headers})
	}
	ms = append(ms, inbox.Message{Source: "orders", ID: "3", Headers: map[string]string{"traceparent": "no trace"}})
	ctx, poll := tracer.Start(t.Context(), "poll")
	_, err := inbox.Bulk(ctx, pool, "billing", ms, func(pgx.Tx, []inbox.Message) error { return nil }, inbox.WithObserver(s.observer()))
	poll.End()
	if err != nil {
		t.Fatal(err)
	}
	if span := theOnly(t, s.ended("idem handle")); len(span.Links()) != 2 || span.Parent().SpanID() != poll.SpanContext().SpanID() {
		t.Errorf("the links are %v, the parent is %v", span.Links(), span.Parent())
	}
}

func TestSpan_OfAFailedHandlerHasNoErrorText(t *testing.T) {
	t.Parallel()
	s, pool := newSeen(t), pgtest.New(t)
	_, err := inbox.Handle(t.Context(), pool, "billing", inbox.Message{Source: "orders", ID: "1"}, func(pgx.Tx) error {
		return errors.New("the card of Ada Lovelace")
	}, inbox.WithObserver(s.observer()))
	if err != nil {
		t.Fatal(err)
	}
	if status := theOnly(t, s.ended("idem handle")).Status(); status.Description != "other" {
		t.Errorf("the status is %+v", status)
	}
}

func theOnly(t *testing.T, spans []sdktrace.ReadOnlySpan) sdktrace.ReadOnlySpan {
	t.Helper()
	if len(spans) != 1 {
		t.Fatalf("%d spans have ended", len(spans))
	}
	return spans[0]
}
