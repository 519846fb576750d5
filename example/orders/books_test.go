package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestBooks_ShowOrderAndRecordOfATransaction(t *testing.T) {
	t.Parallel()
	s := newPagedShop(t)
	wantStatus(t, s.order(withKey("3f9a0c5d7e6b")), http.StatusCreated)
	wantStatus(t, s.order(withKey("8e03978e40d543dd"), withBody(aSamovar)), http.StatusUnprocessableEntity)
	got := s.books(t)
	want := []entry{
		{Record: &bookedRecord{Key: "8e03…(16)", State: "failed", Status: 422}},
		{Order: &bookedOrder{ID: 1, SKU: "teapot", Quantity: 2, AmountCents: 9800}, Record: &bookedRecord{Key: "3f9a…(12)", State: "completed", Status: 201}},
	}
	ignored := cmp.Options{cmpopts.IgnoreFields(bookedOrder{}, "Xmin"), cmpopts.IgnoreFields(bookedRecord{}, "Xmin")}
	if diff := cmp.Diff(want, got, ignored); diff != "" {
		t.Fatalf("entries (-want +got):\n%s", diff)
	}
	if placed := got[1]; placed.Order.Xmin == "" || placed.Order.Xmin != placed.Record.Xmin {
		t.Errorf("transaction %q wrote the order, and %q its record", placed.Order.Xmin, placed.Record.Xmin)
	}
}

func TestBooks_ShowNothingOfAnotherTenant(t *testing.T) {
	t.Parallel()
	s := newPagedShop(t)
	const key = "a-key-of-acme-and-of-globex"
	wantStatus(t, s.order(withKey(key)), http.StatusCreated)
	wantStatus(t, s.order(withKey(key), withCredential("globex-key")), http.StatusCreated)
	for secret, id := range map[string]int64{"acme-key": 1, "globex-key": 2} {
		entries := s.books(t, withCredential(secret))
		if len(entries) != 1 || entries[0].Order == nil || entries[0].Order.ID != id {
			t.Errorf("%s sees %+v, want order %d and nothing else", secret, entries, id)
		}
	}
	if body := s.get("/books").Body.String(); strings.Contains(body, key) {
		t.Errorf("the answer contains the key: %s", body)
	}
	wantProblem(t, s.get("/books", withHeader("Authorization")), http.StatusUnauthorized, ourType+"unauthorized")
}

func (s *shop) books(t *testing.T, edits ...edit) []entry {
	t.Helper()
	answer := s.get("/books", edits...)
	wantStatus(t, answer, http.StatusOK)
	var entries []entry
	if err := json.Unmarshal(answer.Body.Bytes(), &entries); err != nil {
		t.Fatal(err)
	}
	return entries
}
