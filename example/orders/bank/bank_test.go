package bank

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

const good = `{"customer":"acme","card":"card-good","amount_cents":9800,"currency":"EUR"}`

func (b *Bank) ask(key, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	return w
}

func TestBank_ChargesAKeyOnce(t *testing.T) {
	t.Parallel()
	b := New(time.Hour)
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			if again := b.ask("k", good); again.Code != http.StatusCreated {
				t.Errorf("answered %d", again.Code)
			}
		})
	}
	group.Wait()
	if refused := b.ask("k", strings.Replace(good, "9800", "9801", 1)); refused.Code != http.StatusUnprocessableEntity {
		t.Errorf("another charge with the key: answered %d", refused.Code)
	}
	w := httptest.NewRecorder()
	b.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/charges", nil))
	var entries []Entry
	if err := json.Unmarshal(w.Body.Bytes(), &entries); err != nil || len(entries) != 1 || entries[0].Asked != 10 {
		t.Errorf("%+v, %v", entries, err)
	}
}
