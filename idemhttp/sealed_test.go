package idemhttp_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/seal"
)

func sealing(id string) func(*idemhttp.Config) {
	return func(c *idemhttp.Config) {
		c.Sealer = seal.New(seal.Keys{Primary: id, Secrets: map[string][]byte{id: []byte(strings.Repeat(id, seal.SecretSize))}})
	}
}

func TestSealer_SealedAnswerIsReplayed(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"committed": http.StatusCreated, "undone": http.StatusPaymentRequired} {
		inShop(t, name, func(t *testing.T, s *shop) {
			m := s.middleware(sealing("a"))
			h := m.Wrap(s.answering(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/orders/hush")
				w.WriteHeader(status)
				_, _ = io.WriteString(w, "hush")
			}))
			first, again := ask(h), ask(h)
			wantReplay(t, first, again)
			if body(t, again) != "hush" || again.Header.Get("Location") != "/orders/hush" {
				t.Errorf("%v %s", again.Header, body(t, again))
			}
			if n := s.count(`select count(*) from idem.records where sealed_by = 'a' and header is null and strpos(body::text, '68757368') = 0`); n != 1 {
				t.Errorf("%d answers are sealed", n)
			}
			asked := ask(m.Status(), withMethod(http.MethodGet))
			wantStatus(t, asked, http.StatusOK)
			if strings.Contains(body(t, asked), "hush") {
				t.Error(body(t, asked))
			}
		})
	}
}

func TestSealer_UnreadableAnswerRevealsNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	wantStatus(t, ask(s.middleware(sealing("a")).Wrap(http.HandlerFunc(s.order))), http.StatusCreated)
	for name, configure := range map[string]func(*idemhttp.Config){"another key": sealing("b"), "no Sealer": func(*idemhttp.Config) {}} {
		answer := ask(s.middleware(configure).Wrap(http.HandlerFunc(s.order)))
		problem := wantProblem(t, answer, http.StatusInternalServerError, "unreadable")
		if problem["retryable"] != true || problem["safe_new_key"] != false {
			t.Errorf("%s: %v", name, problem)
		}
		if said := body(t, answer); strings.Contains(said, "order\":1") || strings.Contains(said, "seal") || answer.Header.Get("Location") != "" {
			t.Errorf("%s: %v %s", name, answer.Header, said)
		}
	}
	if logged := s.logs.String(); strings.Count(logged, "level=ERROR") != 2 || !strings.Contains(logged, "unknown key") || !strings.Contains(logged, "WithSealer") {
		t.Error(logged)
	}
	s.want(1, 1)
}
