package webhook_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/webhook"
)

// till is a service that inserts a payment for each event.
type till struct {
	t    testing.TB
	pool *pgxpool.Pool
	runs atomic.Int64 // runs of the function, committed or not
	logs logs
	fail atomic.Pointer[error]
}

func newTill(t testing.TB) *till {
	t.Helper()
	return tillOn(t, pgtest.New(t))
}

func tillOn(t testing.TB, pool *pgxpool.Pool) *till {
	t.Helper()
	if _, err := pool.Exec(context.Background(), "create table if not exists payments (n bigint generated always as identity, event text not null, payload bytea not null)"); err != nil {
		t.Fatal(err)
	}
	return &till{t: t, pool: pool}
}

// take is the HandlerFunc.
func (s *till) take(tx pgx.Tx, r *http.Request, m inbox.Message) error {
	s.runs.Add(1)
	if body, err := io.ReadAll(r.Body); err != nil || len(body) == 0 {
		s.t.Errorf("the function reads the body %q, %v", body, err)
	}
	if _, err := tx.Exec(r.Context(), "insert into payments (event, payload) values ($1, $2)", m.ID, m.Payload); err != nil {
		return err
	}
	if err := s.fail.Load(); err != nil {
		return *err
	}
	return nil
}

// handler returns a Handler whose clock shows the time of the example of the scheme.
func (s *till) handler(scheme string, configure ...func(*webhook.HandlerConfig)) *webhook.Handler {
	s.t.Helper()
	c := schemes[scheme]
	config := webhook.HandlerConfig{Consumer: "billing", Source: scheme, Verifier: verifier(s.t, c.make, c.secret), Logger: slog.New(slog.NewTextHandler(&s.logs, nil))}
	for _, f := range configure {
		f(&config)
	}
	h, err := webhook.NewHandler(s.pool, config, s.take)
	if err != nil {
		s.t.Fatal(err)
	}
	h.SetClock(func() time.Time { return c.event.SentAt })
	return h
}

func (s *till) payments() int {
	s.t.Helper()
	var n int
	if err := s.pool.QueryRow(context.Background(), "select count(*) from payments").Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *till) want(payments int) {
	s.t.Helper()
	if got := s.payments(); got != payments {
		s.t.Errorf("%d payments, want %d", got, payments)
	}
}

// ask passes a request to h and returns the response.
func ask(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func wantStatus(t testing.TB, w *httptest.ResponseRecorder, status int) {
	t.Helper()
	if w.Code != status {
		t.Errorf("status %d, want %d: %s", w.Code, status, w.Body)
	}
}

func TestHandler_AppliesAnEventOnce(t *testing.T) {
	t.Parallel()
	for name, c := range schemes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTill(t)
			h := s.handler(name)
			for range 3 {
				wantStatus(t, ask(h, c.request()), http.StatusOK)
			}
			s.want(1)
			var event string
			var payload []byte
			if err := s.pool.QueryRow(t.Context(), "select event, payload from payments").Scan(&event, &payload); err != nil {
				t.Fatal(err)
			}
			want := c.event.Payload
			if want == nil {
				want = []byte(c.body)
			}
			if diff := cmp.Diff([]string{c.event.ID, string(want)}, []string{event, string(payload)}); diff != "" {
				t.Errorf("what the function was given (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHandler_HidesTheReasonOfARefusal(t *testing.T) {
	t.Parallel()
	s := newTill(t)
	h := s.handler("Stripe")
	var answers []string
	for _, edit := range []func(*http.Request){
		without("Stripe-Signature"),
		set("Stripe-Signature", "t=1492774577,v1=00"),
		set("Stripe-Signature", "nonsense"),
		set("Stripe-Signature", stripeSignature("1492770000", stripeDelivery.body)), // valid, but too old
		add("Stripe-Signature", stripeDelivery.header["Stripe-Signature"]),
	} {
		w := ask(h, stripeDelivery.request(edit))
		wantStatus(t, w, http.StatusUnauthorized)
		answers = append(answers, fmt.Sprint(w.Header(), w.Body))
	}
	for _, answer := range answers {
		if answer != answers[0] {
			t.Errorf("%q and %q", answers[0], answer)
		}
	}
	s.want(0)
	if s.runs.Load() != 0 {
		t.Error("the function ran")
	}
	for _, secret := range []string{stripeSecret, "b4072ad5", "evt_1"} {
		if strings.Contains(s.logs.String(), secret) {
			t.Errorf("the log has %q:\n%s", secret, s.logs.String())
		}
	}
}

func TestHandler_ChecksTheTolerance(t *testing.T) {
	t.Parallel()
	s := newTill(t)
	for _, row := range []struct {
		tolerance time.Duration
		clock     time.Duration // relative to the signed time
		status    int
	}{
		{0, 5 * time.Minute, http.StatusOK},
		{0, -5 * time.Minute, http.StatusOK},
		{0, 5*time.Minute + time.Second, http.StatusUnauthorized},
		{0, -5*time.Minute - time.Second, http.StatusUnauthorized}, // the clock of the provider is fast
		{0, 100 * 365 * 24 * time.Hour, http.StatusUnauthorized},
		{time.Hour, time.Hour, http.StatusOK},
		{time.Hour, time.Hour + time.Second, http.StatusUnauthorized},
		{time.Second, 2 * time.Second, http.StatusUnauthorized},
	} {
		for _, scheme := range []string{"StandardWebhooks", "Stripe"} {
			h := s.handler(scheme, func(c *webhook.HandlerConfig) { c.Tolerance = row.tolerance })
			at := schemes[scheme].event.SentAt.Add(row.clock)
			h.SetClock(func() time.Time { return at })
			w := ask(h, schemes[scheme].request())
			if w.Code != row.status {
				t.Errorf("%s, tolerance %v, %v later: status %d, want %d", scheme, row.tolerance, row.clock, w.Code, row.status)
			}
		}
	}
	s.want(2)
}

func TestHandler_RefusesAnEventWithoutAnID(t *testing.T) {
	t.Parallel()
	s := newTill(t)
	for _, id := range []string{"", strings.Repeat("x", 256), "a\x00b", "a\nb", "\xff"} {
		wantStatus(t, ask(s.handler("GitHub"), githubDelivery.request(set("X-GitHub-Delivery", id))), http.StatusBadRequest)
	}
	wantStatus(t, ask(s.handler("GitHub"), githubDelivery.request(without("X-GitHub-Delivery"))), http.StatusBadRequest)
	const body = `{"type":"charge.succeeded"}`
	wantStatus(t, ask(s.handler("Stripe"), delivery{map[string]string{"Stripe-Signature": stripeSignature("1492774577", body)}, body}.request()), http.StatusBadRequest)
	s.want(0)
}

// GitHub does not sign the id, so an attacker with a delivery can change the id.
func TestByContent_RecognizesADeliveryUnderAnotherID(t *testing.T) {
	t.Parallel()
	s := newTill(t)
	h := s.handler("GitHub", func(c *webhook.HandlerConfig) { c.Verifier = webhook.ByContent(c.Verifier) })
	for _, id := range []string{"one", "two", ""} {
		wantStatus(t, ask(h, githubDelivery.request(set("X-GitHub-Delivery", id))), http.StatusOK)
	}
	s.want(1)
	altered := githubDelivery
	altered.body = "hello"
	wantStatus(t, ask(h, altered.request()), http.StatusUnauthorized)

	v := webhook.ByContent(verifier(t, webhook.Stripe, stripeSecret))
	ids := map[string]bool{}
	for _, signed := range [][2]string{{"1", "a"}, {"1", "a"}, {"2", "a"}, {"1", "b"}} { // the time and the body
		event, err := v.Verify(delivery{map[string]string{"Stripe-Signature": stripeSignature(signed[0], signed[1])}, signed[1]}.request(), []byte(signed[1]))
		if err != nil {
			t.Fatal(err)
		}
		ids[event.ID] = true
	}
	if len(ids) != 3 {
		t.Errorf("%d events, want 3", len(ids))
	}
}

func TestHandler_ReportsAReusedID(t *testing.T) {
	t.Parallel()
	s := newTill(t)
	h := s.handler("Stripe")
	wantStatus(t, ask(h, stripeDelivery.request()), http.StatusOK)
	for body, status := range map[string]int{
		`{"id":"evt_1","object":"event","pending_webhooks":0,"type":"charge.succeeded"}`: http.StatusOK, // the same event
		`{"id":"evt_1","object":"event","pending_webhooks":2,"type":"charge.failed"}`:    http.StatusConflict,
	} {
		wantStatus(t, ask(h, delivery{map[string]string{"Stripe-Signature": stripeSignature("1492774577", body)}, body}.request()), status)
	}
	s.want(1)
}

func TestHandler_ReadsAtMostMaxBody(t *testing.T) {
	t.Parallel()
	s := newTill(t)
	h := s.handler("GitHub", func(c *webhook.HandlerConfig) { c.MaxBody = int64(len(githubDelivery.body)) })
	wantStatus(t, ask(h, githubDelivery.request()), http.StatusOK)
	s.want(1)

	get := githubDelivery.request()
	get.Method = http.MethodGet
	if w := ask(h, get); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != http.MethodPost {
		t.Error(w.Code, w.Header())
	}

	announced := githubDelivery.request()
	announced.Body, announced.ContentLength = io.NopCloser(unread{t}), 1<<40
	wantStatus(t, ask(h, announced), http.StatusRequestEntityTooLarge)

	endless := &counted{}
	huge := githubDelivery.request()
	huge.Body, huge.ContentLength = io.NopCloser(endless), -1
	wantStatus(t, ask(h, huge), http.StatusRequestEntityTooLarge)
	if endless.read > 1<<16 {
		t.Errorf("%d bytes were read", endless.read)
	}

	broken := githubDelivery.request()
	broken.Body, broken.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader("Hello"), failing{})), -1
	wantStatus(t, ask(h, broken), http.StatusBadRequest)
	s.want(1)
}

type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("a body that is too large was read")
	return 0, io.EOF
}

type counted struct{ read int }

func (c *counted) Read(p []byte) (int, error) {
	c.read += len(p)
	return len(p), nil
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

var errOutOfOrder = errors.New("the till is out of order")

// A person decides about a dead letter, and the provider has done its part.
func TestHandler_AsksForARetryUntilADeadLetter(t *testing.T) {
	t.Parallel()
	s := newTill(t)
	s.fail.Store(&errOutOfOrder)
	h := s.handler("GitHub", func(c *webhook.HandlerConfig) {
		c.Inbox = []inbox.Option{inbox.WithBackoff(time.Millisecond, time.Millisecond), inbox.WithMaxAttempts(2)}
	})
	w := ask(h, githubDelivery.request())
	wantStatus(t, w, http.StatusServiceUnavailable)
	if after, err := strconv.Atoi(w.Header().Get("Retry-After")); err != nil || after < 1 {
		t.Errorf("Retry-After %q", w.Header().Get("Retry-After"))
	}
	if !strings.Contains(s.logs.String(), errOutOfOrder.Error()) || strings.Contains(w.Body.String(), errOutOfOrder.Error()) {
		t.Errorf("the provider reads %q, and the operator %q", w.Body, s.logs.String())
	}
	for ask(h, githubDelivery.request()).Code != http.StatusOK { // the backoff is a millisecond
	}
	wantStatus(t, ask(h, githubDelivery.request()), http.StatusOK)
	s.want(0)
	if n := countIn(t, s.pool, "select count(*) from idem.dead_letters where source = 'GitHub'"); n != 1 {
		t.Errorf("%d dead letters", n)
	}
}

// A provider may take hours to repeat an event. So failures of other events postpone no event.
func TestHandler_HasNoCircuitByDefault(t *testing.T) {
	t.Parallel()
	s := newTill(t)
	fails := func(pgx.Tx) error { return errOutOfOrder }
	for i := range inbox.DefaultCircuitFailures + 1 {
		o, err := inbox.Handle(t.Context(), s.pool, "billing", inbox.Message{Source: "queue", ID: strconv.Itoa(i)}, fails, inbox.WithBackoff(time.Hour, time.Hour), inbox.WithCircuit(20, time.Hour))
		if err != nil || errors.Is(o.Err, inbox.ErrPaused) != (i == inbox.DefaultCircuitFailures) {
			t.Fatalf("%d: %+v, %v", i, o, err)
		}
	}
	wantStatus(t, ask(s.handler("GitHub"), githubDelivery.request()), http.StatusOK)
	s.want(1)
}

// The connection is cut at each point. A repeated event has one effect.
func TestHandler_Answers2xxOnlyAfterTheCommit(t *testing.T) {
	t.Parallel()
	for name, point := range map[string]pgproxy.Point{
		"before COMMIT":               pgproxy.Before(pgproxy.IsCommit),
		"after COMMIT, unanswered":    pgproxy.AfterAnswer(pgproxy.IsCommit),
		"COMMIT under way, cut there": pgproxy.AfterForward(pgproxy.IsCommit),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct := pgtest.New(t)
			proxy := pgtest.Proxy(t, direct.Config().ConnString())
			s := tillOn(t, direct)
			through := pgtest.Open(t, proxy.DSN())
			s.pool = through
			h := s.handler("GitHub", func(c *webhook.HandlerConfig) {
				c.Inbox = []inbox.Option{inbox.WithBackoff(time.Millisecond, time.Millisecond)}
			})
			s.pool = direct
			trap := proxy.Arm(point, pgproxy.Reset)
			for {
				status, payments := ask(h, githubDelivery.request()).Code, s.payments()
				if status == http.StatusOK {
					s.want(1)
					break
				}
				if status != http.StatusServiceUnavailable || payments > 1 {
					t.Fatalf("status %d, %d payments", status, payments)
				}
			}
			if trap.Count() != 1 {
				t.Error("nothing was cut")
			}
			wantStatus(t, ask(h, githubDelivery.request()), http.StatusOK)
			s.want(1)
		})
	}
}

func TestConfig_IsChecked(t *testing.T) {
	t.Parallel()
	pool, v := &pgxpool.Pool{}, verifier(t, webhook.GitHub, githubSecret)
	take := func(pgx.Tx, *http.Request, inbox.Message) error { return nil }
	for name, config := range map[string]webhook.HandlerConfig{
		"no consumer":        {Source: "github", Verifier: v},
		"no source":          {Consumer: "billing", Verifier: v},
		"no verifier":        {Consumer: "billing", Source: "github"},
		"negative tolerance": {Consumer: "billing", Source: "github", Verifier: v, Tolerance: -1},
		"negative limit":     {Consumer: "billing", Source: "github", Verifier: v, MaxBody: -1},
		"a bad option":       {Consumer: "billing", Source: "github", Verifier: v, Inbox: []inbox.Option{inbox.WithMaxAttempts(0)}},
	} {
		if _, err := webhook.NewHandler(pool, config, take); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	good := webhook.HandlerConfig{Consumer: "billing", Source: "github", Verifier: v}
	_, noPool := webhook.NewHandler(nil, good, take)
	_, noFunction := webhook.NewHandler(pool, good, nil)
	_, noEndpoint := webhook.NewPublisher(webhook.PublisherConfig{})
	if noPool == nil || noFunction == nil || noEndpoint == nil {
		t.Error(noPool, noFunction, noEndpoint)
	}
}

// logs is a buffer for log lines.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

var quiet = slog.New(slog.DiscardHandler)
