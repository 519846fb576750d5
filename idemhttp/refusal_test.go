package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/keyheader"
)

// refusals has a failure for every problem.
var refusals = []struct {
	name string
	in   origin
	err  error
	want Problem // without its texts
}{
	{"no key", inKey, keyheader.ErrMissing, Problem{Type: TypeMissingKey, Status: 400, SafeNewKey: true}},
	{"several keys", inKey, keyheader.ErrSeveral, Problem{Type: TypeInvalidKey, Status: 400, SafeNewKey: true}},
	{"malformed key", inKey, keyheader.ErrMalformed, Problem{Type: TypeInvalidKey, Status: 400, SafeNewKey: true}},
	{"long key", inEngine, idem.ErrInvalidKey, Problem{Type: TypeInvalidKey, Status: 400, SafeNewKey: true}},
	{"another request", inEngine, &idem.MismatchError{Key: "abridged", CreatedAt: time.Now()},
		Problem{Type: TypeKeyReused, Status: 422, SafeNewKey: true}},
	{"in progress", inEngine, &idem.InProgressError{RetryAfter: 1100 * time.Millisecond},
		Problem{Type: TypeInProgress, Status: 409, Retryable: true, RetryAfter: 1100 * time.Millisecond}},
	{"refused by Scope", inScope, errors.New("not yours"), Problem{Type: TypeForbidden, Status: 403}},
	{"refused by Authorize", inAuthorize, errors.New("not yours"), Problem{Type: TypeForbidden, Status: 403}},
	{"a Scope that cannot tell now", inScope, &pgconn.PgError{Code: "57P03"}, passing},
	{"an Authorize that cannot tell now", inAuthorize, context.DeadlineExceeded, passing},
	{"a Fingerprint that cannot tell now", inFingerprint, context.Canceled, passing},
	{"a Fingerprint that fails", inFingerprint, errors.New("no more hashes"), failing},
	{"large body", inBody, &http.MaxBytesError{}, Problem{Type: TypeBodyTooLarge, Status: 413, SafeNewKey: true}},
	{"body that ended early", inBody, io.ErrUnexpectedEOF, Problem{Type: TypeBodyUnreadable, Status: 400, Retryable: true}},
	{"invalid JSON", inFingerprint, fmt.Errorf("%w: at byte 7", idem.ErrInvalidJSON),
		Problem{Type: TypeInvalidJSON, Status: 400, SafeNewKey: true}},
	{"unknown outcome", inEngine, &idem.OutcomeUnknownError{Err: errors.New("cut")},
		Problem{Type: TypeOutcomeUnknown, Status: 503, Retryable: true, RetryAfter: time.Second}},
	{"recorded answer that cannot be read", inEngine, &idem.UnreadableError{SealedBy: "a", Err: context.DeadlineExceeded},
		Problem{Type: TypeUnreadable, Status: 500, Retryable: true}},
	{"server shutting down", inEngine, &pgconn.PgError{Code: "57P01"}, passing},
	{"server that takes no writes", inEngine, &pgconn.PgError{Code: "25006"}, passing},
	{"no connection", inEngine, &pgconn.ConnectError{}, passing},
	{"deadline", inEngine, fmt.Errorf("query: %w", context.DeadlineExceeded), passing},
	{"client gone", inEngine, context.Canceled, passing},
	{"answer too large", inEngine, &idem.ResponseTooLargeError{Size: 2, Limit: 1}, unrecorded},
	{"answer with a broken header", inEngine, idem.ErrInvalidResponse, unrecorded},
	{"trailer", inAnswer, ErrUnrecordable, unrecorded},
	{"aborted", inEngine, fmt.Errorf("%w: ignored: %w", idem.ErrTxAborted, &pgconn.PgError{Code: "40001"}),
		Problem{Type: TypeBrokenTx, Status: 500}},
	{"ended", inEngine, fmt.Errorf("%w: %w", idem.ErrTxEnded, errForgotten), Problem{Type: TypeBrokenTx, Status: 500}},
	{"ended, around an error of the handler", inEngine, fmt.Errorf("%w: %w", idem.ErrTxEnded, &failure{inHandler, errors.New("no")}),
		Problem{Type: TypeBrokenTx, Status: 500}},
	{"anything around an error of the handler", inEngine, fmt.Errorf("more: %w", &failure{inHandler, idem.ErrMismatch}), failing},
	{"anything else", inEngine, errors.New("no more teapots"), failing},
	{"bad scope", inEngine, idem.ErrInvalidScope, failing},
	{"a problem of Scope", inScope, fmt.Errorf("wrapped: %w", &Problem{Type: "x", Status: 418}), Problem{Type: "x", Status: 418}},
	{"gRPC", inProtocol, errGRPC, Problem{Type: TypeProtocol, Status: 415}},
	{"an error of a handler", inHandler, errors.New("no more teapots"), failing},
	{"one of a handler that passes", inHandler, &pgconn.PgError{Code: "53300"}, passing},
}

var (
	passing    = Problem{Type: TypeUnavailable, Status: 503, Retryable: true, RetryAfter: time.Second}
	failing    = Problem{Type: TypeInternal, Status: 500, Retryable: true}
	unrecorded = Problem{Type: TypeUnrecordable, Status: 500, SafeNewKey: true}
)

func TestProblem_OfEachError(t *testing.T) {
	t.Parallel()
	m := plainMiddleware(t)
	for _, test := range refusals {
		got := *m.problem(&failure{test.in, fmt.Errorf("xyzzy: %w", test.err)})
		if said := got.Title + got.Detail; strings.Contains(said, "xyzzy") || said == "" && test.want.Type != "x" {
			t.Errorf("%s: it says %q", test.name, said)
		}
		got.Title, got.Detail = "", ""
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", test.name, diff)
		}
	}
	if got := m.problem(&failure{inKey, keyheader.ErrSeveral}); !strings.Contains(got.Detail, "more than one") {
		t.Errorf("several keys: it says %q", got.Detail)
	}
	if got := m.problem(&failure{inKey, keyheader.ErrMalformed}); !strings.Contains(got.Detail, "one string") {
		t.Errorf("a malformed key: it says %q", got.Detail)
	}
	got := *m.problem(&failure{inEngine, errUnknownWithoutKey})
	if got.Retryable || got.RetryAfter != 0 || got.Type != TypeOutcomeUnknown || !strings.Contains(got.Detail, "no key") {
		t.Errorf("an unknown outcome without a key: %+v", got)
	}
}

// That a client has gone is not logged as an error. The end of a context of the handler's own is.
func TestLog_DisconnectedClientIsNotAnError(t *testing.T) {
	t.Parallel()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		ctx  context.Context
		err  error
		want string
	}{
		{gone, context.Canceled, "DEBUG"},
		{t.Context(), context.Canceled, "ERROR"},
		{gone, errors.New("no more teapots"), "ERROR"},
	} {
		var logged strings.Builder
		m := plainMiddleware(t)
		m.config.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
		r := httptest.NewRequestWithContext(test.ctx, http.MethodPost, "/orders", nil)
		m.refuse(httptest.NewRecorder(), r, &failure{inHandler, test.err})
		if got := logged.String(); strings.Count(got, "level=") != 1 || !strings.Contains(got, "level="+test.want) ||
			!strings.Contains(got, test.err.Error()) || !strings.Contains(got, "path=/orders") {
			t.Errorf("%v: %s", test.err, got)
		}
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
	section  = regexp.MustCompile(`(?ms)^### ([\w-]+)\n\n(\d+), retryable (\w+), safe_new_key (\w+)\.\n(.*?)(?:\z|^##)`)
	typeName = regexp.MustCompile(`problemBase \+ "([\w-]+)"`)
)

// The page at the URL of a type exists, and matches the problem.
func TestProblem_EveryTypeIsDocumented(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	documented := map[string]string{}
	page := read("../docs/http-reference.md")
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
	m := plainMiddleware(t)
	for _, kind := range []string{TypeGetOnly, TypeNoSuchKey, TypeNoSuchOperation} {
		own := m.newProblem(kind)
		defined[strings.TrimPrefix(own.Type, problemBase)] = fmt.Sprint(own.Status, own.Retryable, own.SafeNewKey)
	}
	for _, test := range refusals {
		if name, ok := strings.CutPrefix(test.want.Type, problemBase); ok {
			defined[name] = fmt.Sprint(test.want.Status, test.want.Retryable, test.want.SafeNewKey)
		}
	}
	if diff := cmp.Diff(defined, documented); diff != "" {
		t.Errorf("(-code +docs/http-reference.md)\n%s", diff)
	}
	if !strings.HasSuffix(problemBase, "/docs/http-reference.md#") {
		t.Errorf("the types lead to %s", problemBase)
	}
}

func TestProblem_RetryAfterIsRoundedUp(t *testing.T) {
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
