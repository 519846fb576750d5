package idemhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/internal/keyheader"
)

// Each of these errors would be the client's fault, or an answer, if it arose elsewhere.
func TestHandle_ErrorIsNeverTheClientsFault(t *testing.T) {
	t.Parallel()
	_, invalidJSON := idem.HashJSON([]byte("{"))
	var noProblem *idemhttp.Problem
	for _, test := range []struct {
		name string
		err  error
		kind string
	}{
		{"invalid JSON", invalidJSON, "internal"},
		{"mismatch", &idem.MismatchError{Key: "another"}, "internal"},
		{"invalid key", idem.ErrInvalidKey, "internal"},
		{"invalid scope", idem.ErrInvalidScope, "internal"},
		{"no key", keyheader.ErrMissing, "internal"},
		{"several keys", keyheader.ErrSeveral, "internal"},
		{"malformed key", keyheader.ErrMalformed, "internal"},
		{"large body", &http.MaxBytesError{Limit: 1}, "internal"},
		{"large answer of its own", &idem.ResponseTooLargeError{Size: 2, Limit: 1}, "internal"},
		{"unrecordable answer of its own", idemhttp.ErrUnrecordable, "internal"},
		{"ended transaction of another", idem.ErrTxEnded, "internal"},
		{"aborted transaction of another", idem.ErrTxAborted, "internal"},
		{"rejection", idem.Reject(idem.Response{Status: 200}), "internal"},
		{"nil problem", noProblem, "internal"},
		{"nested call in progress", &idem.InProgressError{Key: "another"}, "unavailable"},
		{"unknown outcome elsewhere", &idem.OutcomeUnknownError{Err: errors.New("cut")}, "unavailable"},
		{"deadline of its own", context.DeadlineExceeded, "unavailable"},
		{"demoted primary", &pgconn.PgError{Code: "25006"}, "unavailable"},
		{"connection that broke", io.ErrUnexpectedEOF, "unavailable"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for name, edits := range map[string][]edit{"with a key": nil, "without a key": {withoutKey()}} {
				s := newShop(t)
				h := s.middleware(optional).Handle(func(tx pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
					s.place(tx)
					w.WriteHeader(http.StatusCreated)
					if test.name == "nil problem" {
						return test.err
					}
					return fmt.Errorf("no more teapots: %w", test.err)
				})
				status := map[string]int{"internal": 500, "unavailable": 503}[test.kind]
				for range 2 {
					answer := ask(h, edits...)
					problem := wantProblem(t, answer, status, test.kind)
					if problem["retryable"] != true || problem["safe_new_key"] != false {
						t.Errorf("%s: %v", name, problem)
					}
					if after := answer.Header.Get("Retry-After"); (after == "1") != (status == 503) {
						t.Errorf("%s: Retry-After %q", name, after)
					}
				}
				if n := s.runs.Load(); n != 2 {
					t.Errorf("%s: the handler ran %d times", name, n)
				}
				if logged := s.logs.String(); !strings.Contains(logged, "in=handler") || !strings.Contains(logged, test.err.Error()) {
					t.Errorf("%s: the log says %s", name, logged)
				}
				s.want(0, 0)
			}
		})
	}
}

func TestHandle_ErrorOfTheWriterIsUnrecordable(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	m := s.middleware(func(c *idemhttp.Config) { c.MaxResponse = 1000 })
	answer := ask(m.Handle(func(_ pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
		_, err := w.Write(make([]byte, 1001))
		return fmt.Errorf("writing: %w", err)
	}))
	wantProblem(t, answer, http.StatusInternalServerError, "unrecordable")
	s.want(0, 0)
}

// A nil *Problem in an error is a bug of the service.
func TestProblem_NilIsAnInternalError(t *testing.T) {
	t.Parallel()
	var none *idemhttp.Problem
	for name, spoil := range map[string]func(*idemhttp.Config){
		"Scope":     func(c *idemhttp.Config) { c.Scope = func(*http.Request) (string, error) { return "", none } },
		"Authorize": func(c *idemhttp.Config) { c.Authorize = func(*http.Request, idem.Result) error { return none } },
		"Fingerprint": func(c *idemhttp.Config) {
			c.Fingerprint = func(*http.Request, []byte) (idem.Hash, error) { return idem.Hash{}, fmt.Errorf("wrapped: %w", none) }
		},
	} {
		inShop(t, name, func(t *testing.T, s *shop) {
			h := s.middleware(spoil).Wrap(http.HandlerFunc(s.order))
			if name == "Authorize" {
				wantStatus(t, ask(h), http.StatusCreated)
			}
			wantProblem(t, ask(h), http.StatusInternalServerError, "internal")
			if logged := s.logs.String(); !strings.Contains(logged, "nil *Problem") || !strings.Contains(logged, "in=Config."+name) {
				t.Errorf("the log says %s", logged)
			}
		})
	}
	if none.Error() == "" {
		t.Error("it says nothing")
	}
}

// Config.Statuses changes the status of a problem, but not whether it is logged.
func TestLog_ServerFaultsWhateverTheirStatus(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	m := s.middleware(func(c *idemhttp.Config) { c.Statuses.Unavailable = http.StatusTooManyRequests })
	answer := ask(m.Handle(func(pgx.Tx, http.ResponseWriter, *http.Request) error { return &pgconn.PgError{Code: "53300"} }))
	wantProblem(t, answer, http.StatusTooManyRequests, "unavailable")
	if !strings.Contains(s.logs.String(), "53300") {
		t.Errorf("the log says %s", &s.logs)
	}
	before := s.logs.String()
	wantProblem(t, ask(m.Wrap(http.NotFoundHandler()), withoutKey()), http.StatusBadRequest, "missing-key")
	if s.logs.String() != before {
		t.Errorf("the fault of a client is logged: %s", &s.logs)
	}
}
