package bank

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/unreliable"
)

// Request is a request to the bank.
type Request struct {
	Key        string // the idempotency key
	Operation  string
	Step       string
	Safety     journal.Safety
	Generation int           // of an Asked call: how often its sender has asked for the outcome
	Declined   bool          // the bank must decline it
	Slow       bool          // the bank must answer slowly
	Sent       time.Duration // by the clock of package history
	Place      string        // what the charge is for
	Refunds    string        // of a refund: the place of its charge
	Given      string        // of an undo: the value of its step
	Process    uint32
	Slot       int
}

// Bank is the server.
type Bank struct {
	*unreliable.Server

	mu       sync.Mutex
	receipts int
	known    map[string]string // receipts, by key
	steps    map[string]string // receipts, by operation and step
	asked    map[string]int    // by key: how often its outcome was asked for
	// closed has, by operation and step, when a person learned that a call did not happen.
	closed map[string]time.Duration
}

// odds are the probabilities of failures of a request.
var odds = unreliable.Odds{
	Stream: 7,
	Slow: []unreliable.Slow{
		{Requests: 6, Most: 20 * time.Millisecond}, {Requests: 2, Most: 200 * time.Millisecond}, {Requests: 1, Most: time.Second},
	},
	Of: 100, Refused: 8, Dropped: 4, Lost: 10, KilledBefore: 2, Killed: 2, KilledSoon: 1,
}

// Open starts the bank. It writes its books to the file books.
func Open(books string, seed uint64) (*Bank, error) {
	server, err := unreliable.Open(books, seed, odds)
	if err != nil {
		return nil, err
	}
	b := &Bank{
		Server: server, known: map[string]string{}, steps: map[string]string{}, asked: map[string]int{},
		closed: map[string]time.Duration{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /book", b.book)
	mux.HandleFunc("POST /ask", b.ask)
	mux.HandleFunc("POST /look-up", b.lookUp)
	b.Serve(mux)
	return b, nil
}

// book handles a request to book. It may fail before or after the booking.
func (b *Bank) book(w http.ResponseWriter, r *http.Request) {
	var q Request
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	b.note(&q, "", false)
	if q.Slow {
		time.Sleep(slow)
	}
	var receipt string
	var status int
	if b.Do(w, "the bank books", q.Slot, func() { receipt, status = b.enter(&q) }) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(Reply{Receipt: receipt})
	}
}

// slow is the additional delay of a Slow request.
const slow = 150 * time.Millisecond

// enter books a request. It returns the earlier receipt for a Keyed request whose key is known. It
// refuses a request that is older than an answer "not booked" to its sender or to a person: that
// answer must stay true.
func (b *Bank) enter(q *Request) (receipt string, status int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known, ok := b.known[q.Key]
	switch {
	case q.Declined:
		return "", http.StatusPaymentRequired
	case q.Safety == journal.Keyed && ok:
		return known, http.StatusOK
	case q.Safety == journal.Asked && q.Generation < b.asked[q.Key]:
		return "", http.StatusConflict // the sender learned later that it did not happen
	case q.Sent < b.closed[q.Operation+" "+q.Step]:
		return "", http.StatusConflict // a person learned the same
	}
	b.receipts++
	receipt = fmt.Sprint("receipt ", b.receipts)
	b.known[q.Key], b.steps[q.Operation+" "+q.Step] = receipt, receipt
	b.note(q, receipt, true)
	return receipt, http.StatusOK
}

// ask answers whether a key was booked. If it was not, older requests with the key are refused from
// now on: a sender proves that it knows this answer by the new generation.
func (b *Bank) ask(w http.ResponseWriter, r *http.Request) {
	var q Request
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var reply Reply
	if b.Do(w, "the bank tells", q.Slot, func() { reply = b.standing(q.Key) }) {
		_ = json.NewEncoder(w).Encode(reply)
	}
}

func (b *Bank) standing(key string) Reply {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked[key]++
	receipt, done := b.known[key]
	return Reply{Receipt: receipt, Done: done, Generation: b.asked[key]}
}

// lookUp answers a person whether a step was booked. If it was not, requests that were sent before
// are refused from now on.
func (b *Bank) lookUp(w http.ResponseWriter, r *http.Request) {
	var q Request
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	receipt, done := b.steps[q.Operation+" "+q.Step]
	if !done {
		b.closed[q.Operation+" "+q.Step] = history.Now()
	}
	b.mu.Unlock()
	_ = json.NewEncoder(w).Encode(Reply{Receipt: receipt, Done: done})
}

func (b *Bank) note(q *Request, receipt string, booked bool) {
	b.Books.Append(journal.Entry{
		At: history.Now(), Booked: booked, Key: q.Key, Operation: q.Operation, Step: q.Step, Receipt: receipt, Process: q.Process,
		Place: q.Place, Refunds: q.Refunds, Given: q.Given,
	})
}
