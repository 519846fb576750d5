package idemhttp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/seal"
)

func TestNew_RejectsAnInvalidConfig(t *testing.T) {
	t.Parallel()
	valid := idemhttp.Config{Scope: byTenant}
	if _, err := idemhttp.New(&pgxpool.Pool{}, valid); err != nil {
		t.Error(err)
	}
	if _, err := idemhttp.New(nil, valid); err == nil {
		t.Error("no pool is accepted")
	}
	for _, test := range []struct {
		field     string
		configure func(*idemhttp.Config)
	}{
		{"Scope", func(c *idemhttp.Config) { c.Scope = nil }},
		{"Without", func(c *idemhttp.Config) { c.Without = []string{"no-slash"} }},
		{"Without", func(c *idemhttp.Config) { c.Without = []string{""} }},
		{"Without", func(c *idemhttp.Config) { c.Without, c.Fingerprint = []string{"/a"}, idemhttp.DefaultFingerprint }},
		{"RecordHeader", func(c *idemhttp.Config) { c.RecordHeader = []string{"set-cookie"} }},
		{"RecordHeader", func(c *idemhttp.Config) { c.RecordHeader, c.ReplayedHeader = []string{"X-Again"}, "x-again" }},
		{"Methods", func(c *idemhttp.Config) { c.Methods = []string{} }},
		{"Methods", func(c *idemhttp.Config) { c.Methods = []string{"post"} }},
		{"Header", func(c *idemhttp.Config) { c.Header = "Idempotency Key" }},
		{"Header", func(c *idemhttp.Config) { c.Header = "Key\x7f" }},
		{"ReplayedHeader", func(c *idemhttp.Config) { c.ReplayedHeader = "Replayed:" }},
		{"MaxBody", func(c *idemhttp.Config) { c.MaxBody = -1 }},
		{"MaxResponse", func(c *idemhttp.Config) { c.MaxResponse = -1 }},
		{"MaxResponse", func(c *idemhttp.Config) { c.MaxResponse = 512<<20 + 1 }},
		{"TTL", func(c *idemhttp.Config) { c.TTL = -time.Hour }},
		{"TTL", func(c *idemhttp.Config) { c.TTL = time.Millisecond - 1 }},
		{"TTL", func(c *idemhttp.Config) { c.TTL = 200 * 365 * 24 * time.Hour }},
		{"Name", func(c *idemhttp.Config) { c.Name = "a\nb" }},
		{"TxOptions", func(c *idemhttp.Config) { c.TxOptions.AccessMode = pgx.ReadOnly }},
		{"Sealer", func(c *idemhttp.Config) { c.Sealer = seal.New(seal.Keys{}) }},
		{"Statuses.InProgress", func(c *idemhttp.Config) { c.Statuses.InProgress = 200 }},
		{"Statuses.MissingKey", func(c *idemhttp.Config) { c.Statuses.MissingKey = 600 }},
	} {
		config := valid
		test.configure(&config)
		if _, err := idemhttp.New(&pgxpool.Pool{}, config); err == nil || !strings.Contains(err.Error(), "idemhttp: Config."+test.field) {
			t.Errorf("%s: %v", test.field, err)
		}
	}
}

func TestConfig_NamesAndStatuses(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	rendered := 0
	m := s.middleware(func(c *idemhttp.Config) {
		c.Header, c.ReplayedHeader = "x-request-key", "x-again"
		c.Statuses = idemhttp.Statuses{MissingKey: 428, InvalidKey: 422, KeyReused: 409, BodyTooLarge: 400}
		c.MaxBody = 20
		c.Render = func(w http.ResponseWriter, r *http.Request, p *idemhttp.Problem) {
			rendered++
			http.Error(w, p.Type, p.Status)
		}
	})
	h := m.Wrap(http.HandlerFunc(s.order))
	key := withHeader("X-Request-Key", "k")
	wantStatus(t, ask(h, key), http.StatusCreated)
	if again := ask(h, key); again.Header.Get("X-Again") != "true" {
		t.Error(again.Header)
	}
	for _, test := range []struct {
		edits  []edit
		status int
		kind   string
	}{
		{nil, 428, "missing-key"},
		{[]edit{withHeader("X-Request-Key", "a", "b")}, 422, "invalid-key"},
		{[]edit{key, withBody("{}")}, 409, "key-reused"},
		{[]edit{key, withBody(strings.Repeat(" ", 30))}, 400, "body-too-large"},
	} {
		answer := ask(h, test.edits...)
		if wantStatus(t, answer, test.status); !strings.HasSuffix(body(t, answer), "#"+test.kind+"\n") {
			t.Error(body(t, answer))
		}
	}
	if rendered != 4 {
		t.Errorf("rendered %d problems", rendered)
	}
}

func TestPresets_FollowTheirProtocols(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config    idemhttp.Config
		replayed  string
		reused    int // status of a key that is reused
		keyless   int // status without a key
		byBytes   bool
		recorded  []int // failures that are recorded
		forgotten []int
		ttl       time.Duration
	}{
		"Stripe v1": {idemhttp.StripeConfig(), "Idempotent-Replayed", 400, 201, false, []int{402, 500}, []int{409}, 24 * time.Hour},
		"Stripe v2": {idemhttp.StripeV2Config(), "Idempotent-Replayed", 400, 201, false, nil, []int{402, 500}, 30 * 24 * time.Hour},
		"UCP":       {idemhttp.UCPConfig(), "Idempotency-Replayed", 409, 400, true, []int{402}, []int{500}, 48 * time.Hour},
	} {
		inShop(t, name, func(t *testing.T, s *shop) {
			m := s.middleware(func(c *idemhttp.Config) {
				test.config.Scope, test.config.Logger, test.config.Wait = c.Scope, c.Logger, -1
				*c = test.config
			})
			order := m.Wrap(http.HandlerFunc(s.order))
			first, again := ask(order), ask(order)
			if again.Header.Get(test.replayed) != "true" || body(t, first) != body(t, again) {
				t.Errorf("%v %s", again.Header, body(t, again))
			}
			kept, err := http.ParseTime(again.Header.Get("Idempotency-Expires"))
			if left := time.Until(kept) - test.ttl; err != nil || left.Abs() > time.Hour {
				t.Errorf("the answer is kept until %v, error %v", kept, err)
			}
			wantProblem(t, ask(order, withBody("{}")), test.reused, "key-reused")
			if spelled := ask(order, withBody(teapot+" ")); (spelled.StatusCode == test.reused) != test.byBytes {
				t.Errorf("another spelling is answered %d", spelled.StatusCode)
			}
			wantStatus(t, ask(order, withoutKey()), test.keyless)
			orders := 1
			if test.keyless == http.StatusCreated {
				orders = 2
			}
			s.want(orders, 1)
			for i, status := range append(test.recorded, test.forgotten...) {
				h, key := m.Wrap(s.answering(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })), withKey(fmt.Sprint("key-", status))
				wantStatus(t, ask(h, key), status)
				if again := ask(h, key); again.StatusCode != status || (again.Header.Get(test.replayed) == "true") != (i < len(test.recorded)) {
					t.Errorf("after %d: %d %v", status, again.StatusCode, again.Header)
				}
			}
			s.want(orders, 1+len(test.recorded))
		})
	}
}

func TestConfig_PassesOptionsToDo(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var level string
	m := s.middleware(func(c *idemhttp.Config) {
		c.TTL, c.Retries = time.Hour, -1
		c.TxOptions = pgx.TxOptions{IsoLevel: pgx.Serializable}
	})
	h := m.Handle(func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		s.place(tx)
		return tx.QueryRow(r.Context(), "show transaction_isolation").Scan(&level)
	})
	wantStatus(t, ask(h), http.StatusOK)
	if level != "serializable" {
		t.Errorf("isolation level %s", level)
	}
	if n := s.count(`select count(*) from idem.records where expires_at between now() + interval '59 minutes' and now() + interval '62 minutes'`); n != 1 {
		t.Error("the TTL is another")
	}
	var runs int
	ask(m.Handle(func(pgx.Tx, http.ResponseWriter, *http.Request) error {
		runs++
		return &pgconn.PgError{Code: "40001"}
	}), withKey("failing"))
	if runs != 1 {
		t.Errorf("the handler ran %d times, want 1", runs)
	}
}
