package outbox_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/outbox"
)

// tracer carries whatever the context has under its own type.
type tracer struct{}

func (tracer) Carry(ctx context.Context, headers map[string]string) {
	if trace, ok := ctx.Value(tracer{}).(string); ok {
		headers["traceparent"], headers["tracestate"] = trace, "s"
	}
}

func TestMessageCarriesTheTraceOfTheContextInWhichItIsAdded(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 64<<10-len("h"))
	trace := map[string]string{"traceparent": "of the request", "tracestate": "s"}
	for name, test := range map[string]struct {
		headers, want map[string]string
		plain         bool
	}{
		"without headers": {want: trace},
		"beside others":   {headers: map[string]string{"a": "b"}, want: map[string]string{"a": "b", "traceparent": "of the request", "tracestate": "s"}},
		"its own stays":   {headers: map[string]string{"traceparent": "mine"}, want: map[string]string{"traceparent": "mine"}},
		"without room":    {headers: map[string]string{"h": large}, want: map[string]string{"h": large}},
		"without a trace": {plain: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			ctx := outbox.WithCarrier(t.Context(), tracer{})
			if !test.plain {
				ctx = context.WithValue(ctx, tracer{}, "of the request") // made from the one with the carrier, as a request's is
			}
			m := outbox.Message{Topic: "orders", Headers: test.headers}
			given := len(test.headers)
			if err := pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error { return outbox.Add(ctx, tx, m) }); err != nil {
				t.Fatal(err)
			}
			var got map[string]string
			var java *string
			if err := o.pool.QueryRow(ctx, `select headers, tracingspancontext from idem.outbox`).Scan(&got, &java); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" || len(m.Headers) != given {
				t.Errorf("%d headers were given, and %d are there\n%.500s", given, len(m.Headers), diff)
			}
			if has := java != nil && strings.Contains(*java, "traceparent="); has != (got["traceparent"] != "") {
				t.Errorf("tracingspancontext is %v", java)
			}
		})
	}
}
