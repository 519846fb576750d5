package idemhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
)

func optional(c *idemhttp.Config) { c.Optional = true }

func TestKeyless_StatusDecidesAboutTheWrites(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	m := s.middleware(optional)
	orders := 0
	for status, commits := range map[int]bool{200: true, 303: true, 404: false, 409: false, 500: false} {
		answer := ask(m.Wrap(s.answering(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "answer")
		})), withoutKey())
		if wantStatus(t, answer, status); body(t, answer) != "answer" {
			t.Errorf("%d: %q", status, body(t, answer))
		}
		if commits {
			orders++
		}
		s.want(orders, 0)
	}
	wantProblem(t, ask(m.Wrap(http.HandlerFunc(s.order)), withKey("a,b")), http.StatusBadRequest, "invalid-key")
}

func TestKeyless_BrokenTransactionCommitsNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	m := s.middleware(optional)
	for name, end := range map[string]func(pgx.Tx, *http.Request){
		"Commit": func(tx pgx.Tx, r *http.Request) {
			if err := tx.Commit(r.Context()); !errors.Is(err, idem.ErrTxEnded) {
				t.Error(err)
			}
		},
		"Rollback": func(tx pgx.Tx, r *http.Request) {
			if err := tx.Rollback(r.Context()); !errors.Is(err, idem.ErrTxEnded) {
				t.Error(err)
			}
		},
		"rollback by SQL": func(tx pgx.Tx, r *http.Request) { _, _ = tx.Exec(r.Context(), "rollback") },
		"session terminated": func(tx pgx.Tx, r *http.Request) {
			_, _ = tx.Exec(r.Context(), "select pg_terminate_backend(pg_backend_pid())")
		},
		"rows left open": func(tx pgx.Tx, r *http.Request) { _, _ = tx.Query(r.Context(), "select 1") },
	} {
		answer := ask(m.Handle(func(tx pgx.Tx, _ http.ResponseWriter, r *http.Request) error {
			s.place(tx)
			end(tx, r)
			return nil
		}), withoutKey())
		if wantProblem(t, answer, http.StatusInternalServerError, "broken-transaction"); t.Failed() {
			t.Fatalf("in the case %q", name)
		}
	}
	s.want(0, 0)
}

func TestKeyless_CommitErrorIsNotASuccess(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	if _, err := s.pool.Exec(t.Context(), `alter table orders add unique (tenant) deferrable initially deferred`); err != nil {
		t.Fatal(err)
	}
	h := s.middleware(optional).Wrap(http.HandlerFunc(s.order))
	wantStatus(t, ask(h, withoutKey()), http.StatusCreated)
	wantProblem(t, ask(h, withoutKey()), http.StatusInternalServerError, "internal")
	s.want(1, 0)
}

// The session ends during COMMIT. Without a key there is no record that tells the outcome.
func TestKeyless_UnknownOutcomeIsNotRetryable(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	gate := s.closeCommits()
	h := s.middleware(optional).Wrap(http.HandlerFunc(s.order))
	answered := make(chan *http.Response)
	go func() { answered <- ask(h, withoutKey()) }()
	gate.waitForCommit()
	if _, err := s.pool.Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and wait_event = 'advisory'`); err != nil {
		t.Fatal(err)
	}
	problem := wantProblem(t, <-answered, http.StatusServiceUnavailable, "outcome-unknown")
	if problem["retryable"] != false || problem["safe_new_key"] != false || !strings.Contains(problem["detail"].(string), "no key") {
		t.Error(problem)
	}
	gate.open()
}

func TestHandle_OtherMethodsRunWithoutAKey(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	h := s.middleware().Handle(func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		s.order(w, r)
		return nil
	})
	for range 2 {
		wantStatus(t, ask(h, withMethod(http.MethodDelete)), http.StatusCreated)
	}
	s.want(2, 0)
}

// recordedTrace is an observer that stores the start, the events and the outcome of each call.
type recordedTrace struct {
	start  idem.TraceStartData
	events []string
	end    idem.TraceEndData
}

type toldKey struct{}

func (o *recordedTrace) TraceStart(ctx context.Context, data idem.TraceStartData) context.Context {
	o.start = data
	return context.WithValue(ctx, toldKey{}, o)
}

func (o *recordedTrace) TraceEvent(ctx context.Context, data idem.TraceEventData) {
	if ctx.Value(toldKey{}) == o {
		o.events = append(o.events, string(data.Event))
	}
}

func (o *recordedTrace) TraceEnd(_ context.Context, data idem.TraceEndData) {
	o.end = data
	o.events = append(o.events, string(data.Outcome))
}

func TestObserver_GetsTheNameWithAndWithoutAKey(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	conflict := &pgconn.PgError{Code: "40001"}
	for name, test := range map[string]struct {
		status int
		errs   []error // of each run
		want   []string
	}{
		"commits":    {201, nil, []string{"executing", "recording", "executed"}},
		"undone":     {422, nil, []string{"executing", "rejected"}},
		"forgets":    {500, nil, []string{"executing", "failed"}},
		"fails":      {0, []error{errors.New("no more teapots")}, []string{"executing", "failed"}},
		"runs twice": {201, []error{conflict}, []string{"executing", "retried", "executing", "recording", "executed"}},
	} {
		for _, keyed := range []bool{false, true} {
			o := &recordedTrace{}
			m := s.middleware(optional, func(c *idemhttp.Config) { c.Name, c.Observer = "place-order", o })
			runs := 0
			h := m.Handle(func(_ pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
				if runs++; runs <= len(test.errs) {
					return test.errs[runs-1]
				}
				w.WriteHeader(test.status)
				return nil
			})
			want, edits := test.want, []edit{withoutKey()}
			if keyed {
				edits = []edit{withKey("key-" + strings.ReplaceAll(name, " ", "-"))}
			}
			if keyed && name == "undone" { // which is recorded, and committed
				want = []string{"executing", "recording", "rejected"}
			}
			ask(h, edits...)
			if diff := cmp.Diff(want, o.events); diff != "" {
				t.Errorf("%s, keyed %t: (-want +seen)\n%s", name, keyed, diff)
			}
			if o.start.Name != "place-order" || o.start.Scope == "" || (o.start.Key != "") != keyed {
				t.Errorf("%s, keyed %t: %+v", name, keyed, o.start)
			}
			failed := o.end.Outcome == idem.OutcomeFailed
			if o.end.Duration <= 0 || o.end.Attempts != len(test.errs)+1 && !failed || failed != (o.end.Err != nil) || failed != (o.end.Cause != "") {
				t.Errorf("%s, keyed %t: %+v", name, keyed, o.end)
			}
		}
	}
}

// gRPC sends its status in trailers, which the middleware does not see. A failed call would be
// committed.
func TestGRPC_IsRejected(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	h := s.middleware(optional).Wrap(http.HandlerFunc(s.order))
	for _, contentType := range []string{"application/grpc", "application/grpc+proto", "application/grpc-web-text", "Application/gRPC"} {
		for _, key := range []edit{withoutKey(), withKey("k")} {
			wantProblem(t, ask(h, key, withHeader("Content-Type", contentType)), http.StatusUnsupportedMediaType, "protocol")
		}
	}
	s.want(0, 0)
}
