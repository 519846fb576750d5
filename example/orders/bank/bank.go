// Package bank is a bank, as far as a shop sees one: a server somewhere else, with books of its own. It stands in for the
// provider that you have.
//
//	POST /charges   charges a card, once for each Idempotency-Key: 201, or 402 if the card is declined
//	GET  /charges   the ledger, of one customer if ?customer= names one
//
// It can do what banks do: be slow, lose its answer behind a charge, decline, and die. Which of the first three it does depends
// on the card. It does it once for a key: asked again it answers at once, from the ledger, as it would have the first time.
package bank

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"
)

// Bank serves HTTP.
type Bank struct {
	http.Handler
	ledger *ledger
	slow   time.Duration
}

// DefaultSlow is how long a slow answer takes, as a rule.
const DefaultSlow = 5 * time.Second

// Open returns the bank whose ledger is in the file at path, and whose slow answers take so long.
func Open(path string, slow time.Duration) (*Bank, error) {
	ledger, err := openLedger(path)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	b := &Bank{mux, ledger, slow}
	mux.HandleFunc("POST /charges", b.charge)
	mux.HandleFunc("GET /charges", b.list)
	return b, nil
}

// Close closes the ledger.
func (b *Bank) Close() error { return b.ledger.file.Close() }

const bodyLimit = 16 << 10

func (b *Bank) charge(w http.ResponseWriter, r *http.Request) {
	key, c := r.Header.Get("Idempotency-Key"), Charge{}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, bodyLimit)).Decode(&c)
	if err != nil || key == "" || len(key) > 255 || c.AmountCents < 1 {
		http.Error(w, "a charge has an Idempotency-Key, an amount and a card", http.StatusBadRequest)
		return
	}
	e, first, err := b.ledger.enter(key, c)
	switch {
	case errors.Is(err, errOtherCharge):
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	case err != nil:
		slog.ErrorContext(r.Context(), "the ledger cannot be written", "error", err)
		http.Error(w, "try again", http.StatusInternalServerError)
	case first && c.Card == CardLostAnswer:
		panic(http.ErrAbortHandler) // net/http closes the connection
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
	_ = json.NewEncoder(w).Encode(value) // if this fails the client is gone
}
