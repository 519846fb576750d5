// Package bank is a small bank: a server with its own books, which stands in for a payment
// provider.
//
//	POST /charges   charges a card, once for each Idempotency-Key: 201, or 402 if the card is declined
//	GET  /charges   the ledger; ?customer= selects one customer
//
// Test cards make the bank fail like a real one: it declines a card, answers late, or loses the
// answer after a charge. It answers late or loses an answer only the first time that a key is used.
// The bank answers a repeated request from the ledger at once.
package bank

import (
	"encoding/json"
	"net/http"
	"time"
)

// Bank is the HTTP handler of the bank.
type Bank struct {
	http.Handler
	ledger *ledger
	slow   time.Duration
}

// DefaultSlow is the default delay of a late answer.
const DefaultSlow = 5 * time.Second

// New returns a bank. slow is the delay of late answers.
func New(slow time.Duration) *Bank {
	mux := http.NewServeMux()
	b := &Bank{mux, &ledger{byKey: map[string]*Entry{}}, slow}
	mux.HandleFunc("POST /charges", b.charge)
	mux.HandleFunc("GET /charges", b.list)
	return b
}

const bodyLimit = 16 << 10

// charge makes a charge, or returns the entry of an earlier request with the same key. If the key
// belongs to another charge, the answer is 422.
func (b *Bank) charge(w http.ResponseWriter, r *http.Request) {
	key, c := r.Header.Get("Idempotency-Key"), Charge{}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, bodyLimit)).Decode(&c)
	if err != nil || key == "" || len(key) > 255 || c.AmountCents < 1 {
		http.Error(w, "a charge has an Idempotency-Key, an amount and a card", http.StatusBadRequest)
		return
	}
	e, first, err := b.ledger.enter(key, c)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	case first && c.Card == CardLostAnswer:
		panic(http.ErrAbortHandler) // makes net/http close the connection
	default:
		if first && c.Card == CardSlow {
			waitFor(r, b.slow)
		}
		answer(w, e)
	}
}

func waitFor(r *http.Request, d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.Context().Done():
	}
}

func answer(w http.ResponseWriter, e Entry) {
	status := http.StatusCreated
	if e.Declined {
		status = http.StatusPaymentRequired
	}
	send(w, status, e)
}

func (b *Bank) list(w http.ResponseWriter, r *http.Request) {
	send(w, http.StatusOK, b.ledger.of(r.URL.Query().Get("customer")))
}

func send(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // an error means that the client has gone
}
