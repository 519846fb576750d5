package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/idem-go/idem/example/orders/bank"
	"github.com/idem-go/idem/idemhttp"
)

func paidWith(card string) string {
	return strings.TrimSuffix(twoTeapots, "}") + `,"card":"` + card + `"}`
}

// checkout sends a checkout of two teapots for acme with the key "k", after the edits. It repeats
// the request while the answer is 202.
func (s *shop) checkout(card string, edits ...edit) *httptest.ResponseRecorder {
	for {
		r := httptest.NewRequest(http.MethodPost, "/checkouts", nil)
		answer := s.do(r, append([]edit{
			withKey("k"), withCredential("acme-key"), withHeader("Content-Type", "application/json"), withBody(paidWith(card)),
		}, edits...)...)
		if answer.Code != http.StatusAccepted || s.t.Context().Err() != nil {
			return answer
		}
	}
}

// wantCharges fails the test unless the bank's ledger has exactly these entries.
func (s *shop) wantCharges(want ...bank.Entry) {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.bank.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/charges", nil))
	var got []bank.Entry
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		s.t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(bank.Entry{}, "ID", "Charge"), cmpopts.EquateEmpty()); diff != "" {
		s.t.Errorf("the bank's ledger (-want +got):\n%s", diff)
	}
}

func TestCheckout_ReservesChargesAndConfirms(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	placed := s.checkout(bank.CardGood)
	wantStatus(t, placed, http.StatusCreated)
	wantReplay(t, placed, s.checkout(bank.CardGood))
	s.wantOrders(1)
	s.wantCharges(bank.Entry{Asked: 1})
	found := s.get(placed.Header().Get("Location"))
	if found.Body.String() != placed.Body.String() || !strings.Contains(found.Body.String(), `"charge_id":"ch-`) {
		t.Errorf("placed %s, found %s", placed.Body, found.Body)
	}
	if got, want := s.steps("k"), "tx reserve done, call charge done, tx confirm done"; got != want {
		t.Errorf("steps: %s, want %s", got, want)
	}
}

func TestCheckout_DeclinedCardReturnsTheStock(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	refused := s.checkout(bank.CardDeclined)
	wantProblem(t, refused, http.StatusPaymentRequired, ourType+"card-declined")
	wantReplay(t, refused, s.checkout(bank.CardDeclined))
	s.wantOrders(0)
	s.wantCharges(bank.Entry{Asked: 1, Declined: true})
	if got, want := s.steps("k"), "tx reserve done, call charge failed, undo reserve done"; got != want {
		t.Errorf("steps: %s, want %s", got, want)
	}
}

func TestCheckout_OutOfStockDoesNotCallTheBank(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	body := strings.TrimSuffix(aSamovar, "}") + `,"card":"card-good"}`
	refused := s.checkout("", withBody(body))
	wantProblem(t, refused, http.StatusUnprocessableEntity, ourType+"out-of-stock")
	wantReplay(t, refused, s.checkout("", withBody(body)))
	s.wantOrders(0)
	s.wantCharges()
}

func TestCheckout_SharesKeysWithOrdersOnAccount(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	wantStatus(t, s.order(), http.StatusCreated)
	wantProblem(t, s.checkout(bank.CardGood), http.StatusUnprocessableEntity, idemhttp.TypeKeyReused)
	wantStatus(t, s.checkout(bank.CardGood, withKey("k2")), http.StatusCreated)
	wantProblem(t, s.order(withKey("k2")), http.StatusUnprocessableEntity, idemhttp.TypeKeyReused)
	s.wantOrders(2)
	s.wantCharges(bank.Entry{Asked: 1})
}

func TestCheckout_NeedsACard(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	wantProblem(t, s.checkout("", withBody(twoTeapots)), http.StatusBadRequest, ourType+"bad-request")
	wantProblem(t, s.checkout("4242 4242 4242 4242"), http.StatusBadRequest, ourType+"bad-request")
	wantProblem(t, s.order(withBody(paidWith(bank.CardGood))), http.StatusBadRequest, ourType+"bad-request")
	wantProblem(t, s.checkout(bank.CardGood, withCredential("stranger")), http.StatusUnauthorized, ourType+"unauthorized")
	s.wantOrders(0)
	s.wantCharges()
}

func TestCheckout_IsHiddenFromAnotherTenant(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	wantStatus(t, s.checkout(bank.CardGood), http.StatusCreated)
	path := "/checkouts/" + s.executionID("k")
	wantStatus(t, s.get(path), http.StatusOK)
	wantProblem(t, s.get(path, withCredential("globex-key")), http.StatusNotFound, idemhttp.TypeNoSuchOperation)
}

// executionID returns the execution id in the status of a key of acme.
func (s *shop) executionID(key string) string {
	s.t.Helper()
	var status struct {
		ExecutionID string `json:"execution_id"`
	}
	if err := json.Unmarshal(s.get("/orders/status", withKey(key)).Body.Bytes(), &status); err != nil || status.ExecutionID == "" {
		s.t.Fatal(status, err)
	}
	return status.ExecutionID
}

// steps returns the steps in the status of the checkout with a key of acme.
func (s *shop) steps(key string) string {
	s.t.Helper()
	var status struct {
		Steps []struct{ Kind, Name, Outcome string }
	}
	if err := json.Unmarshal(s.get("/checkouts/"+s.executionID(key)).Body.Bytes(), &status); err != nil {
		s.t.Fatal(err)
	}
	var steps []string
	for _, step := range status.Steps {
		steps = append(steps, step.Kind+" "+step.Name+" "+step.Outcome)
	}
	return strings.Join(steps, ", ")
}
