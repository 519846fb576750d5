package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
)

func TestKeyHasTwoForms(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		header string
		key    string
		ok     bool
	}{
		{`8e03978e-40d5-43dd-bc93-6894a57f9324`, "8e03978e-40d5-43dd-bc93-6894a57f9324", true},
		{`"8e03978e-40d5-43dd-bc93-6894a57f9324"`, "8e03978e-40d5-43dd-bc93-6894a57f9324", true},
		{`order:7/a_b+c=`, "order:7/a_b+c=", true},
		{`"with a space, a comma; and so on"`, "with a space, a comma; and so on", true},
		{`"a \"quote\" and a \\"`, `a "quote" and a \`, true},
		{`"\\"`, `\`, true},
		{`""`, "", true}, // idem refuses it
		{``, "", true},
		{`"open`, "", false},
		{`"`, "", false},
		{`open"`, "", false},
		{`"ends in a backslash\"`, "", false},
		{`"\n"`, "", false},
		{`"a"b"`, "", false},
		{`"a", "b"`, "", false},
		{`a, b`, "", false},
		{`a,b`, "", false},
		{`"a";version=1`, "", false},
		{`a;version=1`, "", false},
		{`a b`, "", false},
		{`a\b`, "", false},
		{"a\tb", "", false},
		{"a\nb", "", false},
		{"\"a\n\"", "", false},
		{"a\n", "", false},
		{`clé`, "", false},
		{`"clé"`, "", false},
	} {
		key, err := idempotencyKey(http.Header{"Idempotency-Key": {test.header}})
		if ok := err == nil; ok != test.ok || key != test.key {
			t.Errorf("%q: key %q, %v; want %q, %t", test.header, key, err, test.key, test.ok)
		}
	}
}

func TestKeyIsThereOnce(t *testing.T) {
	t.Parallel()
	for _, values := range [][]string{nil, {"a", "b"}, {"a", "a"}, {"", "a"}} {
		if key, err := idempotencyKey(http.Header{"Idempotency-Key": values}); err == nil {
			t.Errorf("%q: key %q, want an error", values, key)
		}
	}
}

func TestRefusalSaysWhetherToTryAgain(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err        error
		status     int
		retryAfter string
	}{
		{&idem.InProgressError{RetryAfter: 1001 * time.Millisecond}, 409, "2"},
		{&idem.InProgressError{RetryAfter: time.Second}, 409, "1"},
		{&idem.MismatchError{}, 422, ""},
		{idem.ErrInvalidKey, 400, ""},
		{idem.ErrInvalidJSON, 400, ""},
		{&idem.OutcomeUnknownError{Err: errors.New("connection reset")}, 503, "1"},
		{&pgconn.PgError{Code: "40001"}, 503, "1"},
		{&pgconn.PgError{Code: "57P01"}, 503, "1"},
		{context.DeadlineExceeded, 503, "1"},
		{context.Canceled, 503, "1"},
		{&pgconn.PgError{Code: "23505"}, 500, ""},
		{idem.ErrTxAborted, 500, ""},
		{idem.ErrInvalidPointer, 500, ""},
		{errors.New("anything"), 500, ""},
	} {
		response := refusal(fmt.Errorf("somewhere: %w", test.err)).response()
		var retryAfter string
		if values := response.Header["Retry-After"]; len(values) > 0 {
			retryAfter = values[0]
		}
		if response.Status != test.status || retryAfter != test.retryAfter {
			t.Errorf("%v: %d, Retry-After %q; want %d, %q", test.err, response.Status, retryAfter, test.status, test.retryAfter)
		}
	}
}
