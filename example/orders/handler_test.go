package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/idem-go/idem/idemhttp"
)

func TestOrder_IsPlacedAndBooked(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	placed := s.order()
	wantStatus(t, placed, http.StatusCreated)
	if got := placed.Header().Get("Idempotency-Replayed"); got != "" {
		t.Errorf("Idempotency-Replayed %q in the first answer", got)
	}
	s.wantOrders(1)

	found := s.get(placed.Header().Get("Location"))
	wantStatus(t, found, http.StatusOK)
	if found.Body.String() != placed.Body.String() {
		t.Errorf("placed %s, found %s", placed.Body, found.Body)
	}
	listed := s.get("/orders")
	wantStatus(t, listed, http.StatusOK)
	if want := "[" + strings.TrimSpace(placed.Body.String()) + "]\n"; listed.Body.String() != want {
		t.Errorf("listed %s, want %s", listed.Body, want)
	}
	if n := s.count(`SELECT count(*) FROM ledger JOIN idem.records USING (execution_id)`); n != 1 {
		t.Errorf("%d ledger entries have a record, want 1", n)
	}
}

func TestOrder_RetryIsReplayed(t *testing.T) {
	t.Parallel()
	for name, retry := range map[string]edit{
		"unchanged":               withKey("k"),
		"key in quotes":           withKey(`"k"`),
		"client_time added":       withBody(`{"sku":"teapot","quantity":2,"amount_cents":9800,"currency":"EUR","client_time":"2026-11-21T10:00:00Z"}`),
		"encoded differently":     withBody(`{"currency":"EUR", "amount_cents": 9800, "quantity":2, "sku":"tea\u0070ot"}`),
		"with another credential": withCredential("acme-next-key"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			first := s.order()
			wantStatus(t, first, http.StatusCreated)
			wantReplay(t, first, s.order(retry))
			s.wantOrders(1)
		})
	}
}

func TestOrder_RefusedRequestChangesNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	field := func(name, value string) edit {
		fields := map[string]string{"sku": `"teapot"`, "quantity": "2", "amount_cents": "9800", "currency": `"EUR"`}
		fields[name] = value
		var members []string
		for name, value := range fields {
			members = append(members, fmt.Sprintf("%q:%s", name, value))
		}
		return withBody("{" + strings.Join(members, ",") + "}")
	}
	for _, test := range []struct {
		name   string
		edit   edit
		status int
		kind   string
	}{
		{"no credential", withHeader("Authorization"), 401, ourType + "unauthorized"},
		{"unknown credential", withCredential("stranger"), 401, ourType + "unauthorized"},
		{"other scheme", withHeader("Authorization", "Basic acme-key"), 401, ourType + "unauthorized"},
		{"no key", withHeader("Idempotency-Key"), 400, idemhttp.TypeMissingKey},
		{"several keys", withHeader("Idempotency-Key", "k1", "k2"), 400, idemhttp.TypeInvalidKey},
		{"list of keys", withKey("k1, k2"), 400, idemhttp.TypeInvalidKey},
		{"empty key", withKey(`""`), 400, idemhttp.TypeInvalidKey},
		{"long key", withKey(strings.Repeat("k", 256)), 400, idemhttp.TypeInvalidKey},
		{"no body", withBody(""), 400, ourType + "bad-request"},
		{"not JSON", withBody("sku=teapot"), 400, idemhttp.TypeInvalidJSON},
		{"another media type", withHeader("Content-Type", "text/plain"), 415, ourType + "not-json"},
		{"no media type", withHeader("Content-Type"), 415, ourType + "not-json"},
		{"not an object", withBody("[]"), 400, ourType + "bad-request"},
		{"two documents", withBody(twoTeapots + twoTeapots), 400, idemhttp.TypeInvalidJSON},
		{"two amounts", withBody(`{"amount_cents":1,` + twoTeapots[1:]), 400, idemhttp.TypeInvalidJSON},
		{"invalid UTF-8", field("note", "\"\xff\""), 400, idemhttp.TypeInvalidJSON},
		{"unknown field", field("amount", "98"), 400, ourType + "bad-request"},
		{"no sku", field("sku", `""`), 400, ourType + "bad-request"},
		{"quantity zero", field("quantity", "0"), 400, ourType + "bad-request"},
		{"quantity beyond the column", field("quantity", "3000000000"), 400, ourType + "bad-request"},
		{"negative amount", field("amount_cents", "-9800"), 400, ourType + "bad-request"},
		{"no currency", field("currency", `"euro"`), 400, ourType + "bad-request"},
		{"NUL in the note", field("note", `"\u0000"`), 400, ourType + "bad-request"},
		{"long note", field("note", `"`+strings.Repeat("n", 501)+`"`), 400, ourType + "bad-request"},
		{"huge body", field("note", `"`+strings.Repeat("n", bodyLimit)+`"`), 413, idemhttp.TypeBodyTooLarge},
		{"out of stock", withBody(aSamovar), 422, ourType + "out-of-stock"},
	} {
		// The cases share a database. Each has its own key, unless its edit sets another one.
		wantProblem(t, s.order(withKey(strings.ReplaceAll(test.name, " ", "-")), test.edit), test.status, test.kind)
		if t.Failed() {
			t.Fatalf("in the case %q", test.name)
		}
	}
	s.wantOrders(0)
}

func TestOrder_TenantsHaveSeparateKeys(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	acme, globex := s.order(), s.order(withCredential("globex-key"))
	wantStatus(t, acme, http.StatusCreated)
	wantStatus(t, globex, http.StatusCreated)
	if globex.Header().Get("Idempotency-Replayed") != "" {
		t.Error("globex got the answer of acme")
	}
	s.wantOrders(2)
	wantProblem(t, s.get(acme.Header().Get("Location"), withCredential("globex-key")), http.StatusNotFound, ourType+"no-such-order")
}

func TestOrder_OutOfStockIsFinalForItsKey(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	refused := s.order(withBody(aSamovar))
	wantProblem(t, refused, http.StatusUnprocessableEntity, ourType+"out-of-stock")
	s.wantOrders(0)

	s.exec(`UPDATE stock SET quantity = 1 WHERE sku = 'samovar'`)
	wantReplay(t, refused, s.order(withBody(aSamovar)))
	wantStatus(t, s.order(withBody(aSamovar), withKey("k2")), http.StatusCreated)
}
