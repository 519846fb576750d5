package bank

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const (
	good     = `{"customer":"acme","card":"card-good","amount_cents":9800,"currency":"EUR"}`
	declined = `{"customer":"acme","card":"card-declined","amount_cents":9800,"currency":"EUR"}`
)

func open(t *testing.T, path string) *Bank {
	t.Helper()
	b, err := Open(path, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func ledgerPath(t *testing.T) string { return filepath.Join(t.TempDir(), "ledger") }

func (b *Bank) ask(key, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	return w
}

func (b *Bank) wantEntries(t *testing.T, want ...Entry) {
	t.Helper()
	w := httptest.NewRecorder()
	b.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/charges", nil))
	var got []Entry
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Entry{}, "ID", "Charge"), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

func TestKeyIsChargedOnceHoweverOftenItIsAsked(t *testing.T) {
	t.Parallel()
	b := open(t, ledgerPath(t))
	first := b.ask("k", good)
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			var one, again Entry
			again1 := b.ask("k", good)
			err := errors.Join(json.Unmarshal(first.Body.Bytes(), &one), json.Unmarshal(again1.Body.Bytes(), &again))
			if err != nil || again1.Code != http.StatusCreated || one.ID != again.ID {
				t.Errorf("answered %d %+v, %v; and first %+v", again1.Code, again, err, one)
			}
		})
	}
	group.Wait()
	b.wantEntries(t, Entry{Asked: 11})
}

func TestLedgerOutlivesTheBank(t *testing.T) {
	t.Parallel()
	path := ledgerPath(t)
	before := open(t, path)
	charged := before.ask("k", good)
	before.ask("no", declined)
	after := open(t, path) // the other one was not closed: it was killed
	after.wantEntries(t, Entry{Asked: 1, Declined: true}, Entry{Asked: 1})
	again := after.ask("k", good)
	var one, other Entry
	if err := errors.Join(json.Unmarshal(charged.Body.Bytes(), &one), json.Unmarshal(again.Body.Bytes(), &other)); err != nil || one.ID != other.ID {
		t.Errorf("charged %+v, and then %+v, %v", one, other, err)
	}
	if again := after.ask("no", declined); again.Code != http.StatusPaymentRequired {
		t.Errorf("answered %d, want 402 once more", again.Code)
	}
	after.wantEntries(t, Entry{Asked: 2, Declined: true}, Entry{Asked: 2})
}

// A process that is killed while it writes leaves such a line. No client was told of it.
func TestLineWithoutAnEndIsDropped(t *testing.T) {
	t.Parallel()
	path := ledgerPath(t)
	open(t, path).ask("k", good)
	whole, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(whole, whole[:len(whole)-1]...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, path)
	b.wantEntries(t, Entry{Asked: 1})
	b.ask("o", `{"card":"card-good","amount_cents":1}`) // shorter than what was dropped
	open(t, path).wantEntries(t, Entry{Asked: 1}, Entry{Asked: 1})
}

func TestKeyOfAnotherChargeIsRefused(t *testing.T) {
	t.Parallel()
	b := open(t, ledgerPath(t))
	b.ask("k", good)
	if refused := b.ask("k", strings.Replace(good, "9800", "9801", 1)); refused.Code != http.StatusUnprocessableEntity {
		t.Errorf("answered %d", refused.Code)
	}
	for key, body := range map[string]string{"": good, "k1": "{}", "k2": "charge"} {
		if refused := b.ask(key, body); refused.Code != http.StatusBadRequest {
			t.Errorf("%q, %s: answered %d", key, body, refused.Code)
		}
	}
	b.wantEntries(t, Entry{Asked: 1})
}

// The connection is cut, or there is no answer for an hour; asked again, the bank answers at once.
func TestAnswerThatIsLostOrLateIsInTheLedgerAlready(t *testing.T) {
	t.Parallel()
	for _, card := range []string{CardLostAnswer, CardSlow} {
		t.Run(card, func(t *testing.T) {
			t.Parallel()
			b := open(t, ledgerPath(t))
			server := httptest.NewServer(b)
			defer server.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ask := func() (*http.Response, error) {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/charges",
					strings.NewReader(strings.Replace(good, "card-good", card, 1)))
				if err != nil {
					return nil, err
				}
				r.GetBody = nil // so that net/http does not repeat it
				r.Header.Set("Idempotency-Key", "k")
				return server.Client().Do(r)
			}
			unanswered := make(chan error, 1)
			go func() {
				response, err := ask()
				if err == nil {
					response.Body.Close()
				}
				unanswered <- err
			}()
			for len(b.ledger.of("acme")) == 0 {
				time.Sleep(time.Millisecond)
			}
			response, err := ask()
			if err != nil || response.StatusCode != http.StatusCreated {
				t.Fatal(response, err)
			}
			response.Body.Close()
			server.CloseClientConnections()
			if err := <-unanswered; !errors.Is(err, io.EOF) {
				t.Errorf("the first was answered: %v", err)
			}
			b.wantEntries(t, Entry{Asked: 2})
		})
	}
}
