package idemhttp_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
)

func TestScope_PrincipalsDoNotShareKeys(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	h := s.middleware().Wrap(http.HandlerFunc(s.order))
	mine, yours := ask(h), ask(h, withTenant("u"))
	wantStatus(t, mine, http.StatusCreated)
	wantStatus(t, yours, http.StatusCreated)
	if body(t, mine) == body(t, yours) || yours.Header.Get("Idempotency-Replayed") != "" {
		t.Errorf("%s and %s", body(t, mine), body(t, yours))
	}
	wantReplay(t, mine, ask(h))
	wantReplay(t, yours, ask(h, withTenant("u")))
	s.want(2, 2)
}

func TestMismatch_RevealsNothingOfTheAnswer(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	h := s.middleware().Wrap(s.answering(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Secret", "secret")
		_, _ = io.WriteString(w, "secret")
	}))
	wantStatus(t, ask(h), http.StatusOK)
	answer := ask(h, withBody(`{"sku":"samovar"}`))
	problem := wantProblem(t, answer, http.StatusUnprocessableEntity, "key-reused")
	if problem["retryable"] != false || problem["safe_new_key"] != true {
		t.Error(problem)
	}
	if strings.Contains(body(t, answer), "secret") || answer.Header.Get("X-Secret") != "" ||
		answer.Header.Get("Idempotency-Replayed") != "" || answer.Header.Get(idemhttp.ExpiresHeader) != "" {
		t.Errorf("%v %s", answer.Header, body(t, answer))
	}
	s.want(1, 1)
}

// Scope is called first, and the size of the body is checked before the database is used. A
// rejected request takes no connection.
func TestScope_RejectedRequestTakesNoConnection(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	m := s.middleware(func(c *idemhttp.Config) {
		c.MaxBody = 100
		c.Scope = func(r *http.Request) (string, error) {
			if r.Header.Get("Authorization") == "Bearer stranger" {
				return "", errors.New("a secret reason")
			}
			return byTenant(r)
		}
	})
	h := m.Wrap(http.HandlerFunc(s.order))
	large := `"` + strings.Repeat("x", 100) + `"`
	chunked := func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader(large)), -1 }
	for _, test := range []struct {
		name   string
		edits  []edit
		status int
		kind   string
	}{
		{"no scope", []edit{withHeader("Authorization", "Bearer stranger")}, 403, "forbidden"},
		{"no scope, and no key", []edit{withHeader("Authorization", "Bearer stranger"), withoutKey()}, 403, "forbidden"},
		{"no scope, and several keys", []edit{withHeader("Authorization", "Bearer stranger"), withKey("a,b")}, 403, "forbidden"},
		{"no scope, and a large body", []edit{withHeader("Authorization", "Bearer stranger"), withBody(large)}, 403, "forbidden"},
		{"no key", []edit{withoutKey()}, 400, "missing-key"},
		{"no key, and a large body", []edit{withoutKey(), withBody(large)}, 400, "missing-key"},
		{"several fields", []edit{withHeader("Idempotency-Key", "a", "b")}, 400, "invalid-key"},
		{"list", []edit{withKey(`"a", "b"`)}, 400, "invalid-key"},
		{"empty", []edit{withKey("")}, 400, "invalid-key"},
		{"empty string", []edit{withKey(`""`)}, 400, "invalid-key"},
		{"open string", []edit{withKey(`"a`)}, 400, "invalid-key"},
		{"control character", []edit{withKey("a\x00b")}, 400, "invalid-key"},
		{"not ASCII", []edit{withKey("kеy")}, 400, "invalid-key"},
		{"invalid UTF-8", []edit{withKey("k\xff")}, 400, "invalid-key"},
		{"semicolon", []edit{withKey("'; drop table orders")}, 400, "invalid-key"},
		{"256 bytes", []edit{withKey(strings.Repeat("k", 256))}, 400, "invalid-key"},
		{"a megabyte", []edit{withKey(strings.Repeat("k", 1<<20))}, 400, "invalid-key"},
		{"large body", []edit{withBody(large)}, 413, "body-too-large"},
		{"large body of unknown length", []edit{chunked}, 413, "body-too-large"},
		{"body that ends early", []edit{withBody(teapot), func(r *http.Request) { r.ContentLength++ }}, 400, "body-unreadable"},
		{"no JSON", []edit{withBody("sku=teapot")}, 400, "invalid-json"},
		{"two amounts", []edit{withBody(`{"a":1,"a":2}`)}, 400, "invalid-json"},
	} {
		before := s.pool.Stat().AcquireCount()
		answer := ask(h, test.edits...)
		if wantProblem(t, answer, test.status, test.kind); t.Failed() {
			t.Fatalf("in the case %q", test.name)
		}
		if n := s.pool.Stat().AcquireCount() - before; n != 0 {
			t.Errorf("%s: %d connections were taken", test.name, n)
		}
		if strings.Contains(body(t, answer), "secret") {
			t.Errorf("%s: %s", test.name, body(t, answer))
		}
	}
	s.want(0, 0)
}

func TestAuthorize_IsCalledBeforeEveryReplay(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var refusal error
	var asked []idem.Result
	m := s.middleware(func(c *idemhttp.Config) {
		c.Authorize = func(r *http.Request, result idem.Result) error {
			text, err := io.ReadAll(r.Body)
			if string(text) != teapot || err != nil {
				t.Errorf("the body is %q, %v", text, err)
			}
			asked = append(asked, result)
			return refusal
		}
	})
	h := m.Wrap(http.HandlerFunc(s.order))
	first := ask(h)
	wantStatus(t, first, http.StatusCreated)
	if len(asked) != 0 {
		t.Error("asked about the first answer")
	}
	wantReplay(t, first, ask(h))
	for _, test := range []struct {
		err    error
		status int
		kind   string
	}{
		{errors.New("a permission was taken away"), 403, "forbidden"},
		{&idemhttp.Problem{Type: "x/docs/http-reference.md#gone", Status: 410}, 410, "gone"},
		{&pgconn.PgError{Code: "53300"}, 503, "unavailable"},
	} {
		refusal = test.err
		answer := ask(h)
		wantProblem(t, answer, test.status, test.kind)
		for _, name := range []string{"Location", "Idempotency-Replayed", idemhttp.OriginalDateHeader} {
			if answer.Header.Get(name) != "" {
				t.Errorf("%s: %s", name, answer.Header.Get(name))
			}
		}
		if strings.Contains(body(t, answer), "order") || strings.Contains(body(t, answer), "permission") {
			t.Error(body(t, answer))
		}
	}
	refusal = nil
	wantReplay(t, first, ask(h))
	if len(asked) != 5 || asked[0].Status != http.StatusCreated || string(asked[0].Body) != body(t, first) {
		t.Errorf("asked %d times, first about %+v", len(asked), asked[0])
	}
}

// The log has the cause of a failure, but neither a whole key nor a body.
func TestLog_HasTheCauseAndNoKey(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const key = "8e03978e-40d5-43dd-bc93-6894a57f9324"
	m := s.middleware()
	ask(m.Handle(func(tx pgx.Tx, _ http.ResponseWriter, r *http.Request) error {
		_, err := tx.Exec(r.Context(), "select 1/0")
		return err
	}), withKey(key))
	ask(m.Handle(func(tx pgx.Tx, _ http.ResponseWriter, r *http.Request) error {
		_, _ = tx.Exec(r.Context(), "commit")
		return nil
	}), withKey(key))
	ask(m.Wrap(http.HandlerFunc(s.order)), withKey(key))
	logged := s.logs.String()
	for _, want := range []string{"division by zero", "must not end the transaction", "an earlier execution of key", "path=/orders"} {
		if !strings.Contains(logged, want) {
			t.Errorf("%q is not in the log:\n%s", want, logged)
		}
	}
	for _, secret := range []string{key, key[5:], "teapot", "secret"} {
		if strings.Contains(logged, secret) {
			t.Errorf("%q is in the log:\n%s", secret, logged)
		}
	}
}
