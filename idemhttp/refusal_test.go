package idemhttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/keyheader"
)

// refusals has an error for every problem.
var refusals = []struct {
	name string
	err  error
	want Problem // without its texts
}{
	{"no key", keyheader.ErrMissing, Problem{Type: TypeMissingKey, Status: 400, SafeNewKey: true}},
	{"several keys", keyheader.ErrSeveral, Problem{Type: TypeInvalidKey, Status: 400, SafeNewKey: true}},
	{"malformed key", keyheader.ErrMalformed, Problem{Type: TypeInvalidKey, Status: 400, SafeNewKey: true}},
	{"long key", idem.ErrInvalidKey, Problem{Type: TypeInvalidKey, Status: 400, SafeNewKey: true}},
	{"another request", &idem.MismatchError{Key: "abridged", CreatedAt: time.Now()}, Problem{Type: TypeKeyReused, Status: 422, SafeNewKey: true}},
	{"in progress", &idem.InProgressError{RetryAfter: 1100 * time.Millisecond},
		Problem{Type: TypeInProgress, Status: 409, Retryable: true, RetryAfter: 1100 * time.Millisecond}},
	{"refused by a hook", forbidden{errors.New("not yours")}, Problem{Type: TypeForbidden, Status: 403}},
	{"a hook that cannot tell now", forbidden{&pgconn.PgError{Code: "57P03"}},
		Problem{Type: TypeUnavailable, Status: 503, Retryable: true, RetryAfter: time.Second}},
	{"large body", fmt.Errorf("%w: %w", errBody, &http.MaxBytesError{}), Problem{Type: TypeBodyTooLarge, Status: 413, SafeNewKey: true}},
	{"body that ended early", fmt.Errorf("%w: early", errBody), Problem{Type: TypeBodyUnreadable, Status: 400, Retryable: true}},
	{"invalid JSON", fmt.Errorf("%w: at byte 7", idem.ErrInvalidJSON), Problem{Type: TypeInvalidJSON, Status: 400, SafeNewKey: true}},
	{"unknown outcome", &idem.OutcomeUnknownError{Err: errors.New("cut")},
		Problem{Type: TypeOutcomeUnknown, Status: 503, Retryable: true, RetryAfter: time.Second}},
	{"server shutting down", &pgconn.PgError{Code: "57P01"}, Problem{Type: TypeUnavailable, Status: 503, Retryable: true, RetryAfter: time.Second}},
	{"no connection", &pgconn.ConnectError{}, Problem{Type: TypeUnavailable, Status: 503, Retryable: true, RetryAfter: time.Second}},
	{"deadline", fmt.Errorf("query: %w", context.DeadlineExceeded), Problem{Type: TypeUnavailable, Status: 503, Retryable: true, RetryAfter: time.Second}},
	{"client gone", context.Canceled, Problem{Type: TypeUnavailable, Status: 503, Retryable: true, RetryAfter: time.Second}},
	{"large answer", &idem.ResponseTooLargeError{}, Problem{Type: TypeUnrecordable, Status: 500, SafeNewKey: true}},
	{"answer that cannot be stored", idem.ErrInvalidResponse, Problem{Type: TypeUnrecordable, Status: 500, SafeNewKey: true}},
	{"trailer", fmt.Errorf("%w: trailer", ErrUnrecordable), Problem{Type: TypeUnrecordable, Status: 500, SafeNewKey: true}},
	{"aborted", idem.ErrTxAborted, Problem{Type: TypeBrokenTx, Status: 500}},
	{"ended", fmt.Errorf("%w: %w", idem.ErrTxEnded, errForgotten), Problem{Type: TypeBrokenTx, Status: 500}},
	{"anything else", errors.New("no more teapots"), Problem{Type: TypeInternal, Status: 500, Retryable: true}},
	{"bad scope", idem.ErrInvalidScope, Problem{Type: TypeInternal, Status: 500, Retryable: true}},
	{"a problem", fmt.Errorf("wrapped: %w", &Problem{Type: "x", Status: 418}), Problem{Type: "x", Status: 418}},
	{"unused key", errNoSuchKey, Problem{Type: TypeNoSuchKey, Status: 404}},
	{"status by POST", errGetOnly, Problem{Type: TypeGetOnly, Status: 405, Header: http.Header{"Allow": {"GET, HEAD"}}}},
}

func TestEachErrorIsAProblemThatSaysWhatToDo(t *testing.T) {
	t.Parallel()
	m := plainMiddleware(t)
	for _, test := range refusals {
		got := *m.problem(fmt.Errorf("xyzzy: %w", test.err))
		if said := got.Title + got.Detail; strings.Contains(said, "xyzzy") || said == "" && test.want.Type != "x" {
			t.Errorf("%s: it says %q", test.name, said)
		}
		got.Title, got.Detail = "", ""
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", test.name, diff)
		}
	}
	if got := *m.problem(errUnknownWithoutKey); got.Retryable || got.Type != TypeOutcomeUnknown {
		t.Errorf("an unknown outcome without a key: %+v", got)
	}
}

func plainMiddleware(t testing.TB) *Middleware {
	t.Helper()
	m, err := New(&pgxpool.Pool{}, Config{
		Scope:  func(*http.Request) (string, error) { return "s", nil },
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var (
	section  = regexp.MustCompile(`(?ms)^## ([\w-]+)\n\n\| status \| retryable \| safe_new_key \|\n\|[-|]+\|\n\| (\d+) \| (\w+) \| (\w+) \|\n\n(.*?)(?:\z|^## )`)
	typeName = regexp.MustCompile(`problemBase \+ "([\w-]+)"`)
)

// The page that a type leads to is there, and says what the problem says.
func TestEveryProblemTypeIsDocumented(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	documented := map[string]string{}
	page := read("../docs/problems.md")
	for {
		match := section.FindStringSubmatchIndex(page)
		if match == nil {
			break
		}
		group := func(n int) string { return page[match[2*n]:match[2*n+1]] }
		documented[group(1)] = strings.Join([]string{group(2), group(3), group(4)}, " ")
		if len(strings.TrimSpace(group(5))) < 40 {
			t.Errorf("%s: nothing is said about what to do", group(1))
		}
		page = page[match[11]:]
	}
	defined := map[string]string{}
	for _, match := range typeName.FindAllStringSubmatch(read("problem.go"), -1) {
		defined[match[1]] = "never made"
	}
	for _, test := range refusals {
		if name, ok := strings.CutPrefix(test.want.Type, problemBase); ok {
			defined[name] = fmt.Sprint(test.want.Status, test.want.Retryable, test.want.SafeNewKey)
		}
	}
	if diff := cmp.Diff(defined, documented); diff != "" {
		t.Errorf("(-code +docs/problems.md)\n%s", diff)
	}
	if !strings.HasSuffix(strings.TrimSuffix(problemBase, "#"), "/docs/problems.md") {
		t.Errorf("the types lead to %s", problemBase)
	}
}

func TestRetryAfterIsRoundedUpToWholeSeconds(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]string{
		0: "", time.Nanosecond: "1", time.Second: "1", 1100 * time.Millisecond: "2", 90 * time.Second: "90",
	} {
		w := httptest.NewRecorder()
		(&Problem{Status: 503, RetryAfter: after}).ServeHTTP(w, nil)
		if got := w.Header().Get("Retry-After"); got != want {
			t.Errorf("%v: Retry-After %q, want %q", after, got, want)
		}
	}
}

func TestOutcomeUnknownIsA503ThatAsksForTheSameKey(t *testing.T) {
	t.Parallel()
	m := plainMiddleware(t)
	m.do = func(context.Context, *pgxpool.Pool, string, string, idem.Hash, func(pgx.Tx) (idem.Response, error), ...idem.Option) (idem.Result, error) {
		return idem.Result{}, &idem.OutcomeUnknownError{Err: errors.New("connection reset")}
	}
	r := httptest.NewRequest(http.MethodPost, "/orders", nil)
	r.Header.Set("Idempotency-Key", "k")
	w := httptest.NewRecorder()
	m.Wrap(http.NotFoundHandler()).ServeHTTP(w, r)
	var members map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &members); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"type": TypeOutcomeUnknown, "title": members["title"], "detail": "The same request with the same key will tell.",
		"status": 503.0, "retryable": true, "safe_new_key": false,
	}
	if diff := cmp.Diff(want, members); diff != "" || w.Code != 503 || w.Header().Get("Retry-After") != "1" {
		t.Errorf("%d %v\n%s", w.Code, w.Header(), diff)
	}
}
