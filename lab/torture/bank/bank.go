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

// Request is what is asked of the bank.
type Request struct {
	Key        string // under which it knows the request again
	Operation  string
	Step       string
	Safety     journal.Safety
	Generation int           // of an Asked one: how often its sender has asked for the outcome of the key
	Declined   bool          // the bank does not want to
	Slow       bool          // it takes its time
	Sent       time.Duration // by the history's clock
	Place      string        // what is charged
	Refunds    string        // the place whose charge is taken back, of a refund
	Given      string        // of an undo: the value of its step
	Process    uint32
	Slot       int
}

// Bank is the server.
type Bank struct {
	*unreliable.Server

	mu       sync.Mutex
	receipts int
	known    map[string]string        // the receipts, by key
	steps    map[string]string        // the receipts, by operation and step
	asked    map[string]int           // how often somebody has asked for the outcome of a key
	closed   map[string]time.Duration // when a person was told that it has not happened, by operation and step
}

// odds are how often things go wrong with a request.
var odds = unreliable.Odds{
	Stream: 7,
	Slow: []unreliable.Slow{
		{Requests: 6, Most: 20 * time.Millisecond}, {Requests: 2, Most: 200 * time.Millisecond}, {Requests: 1, Most: time.Second},
	},
	Of: 100, Refused: 8, Dropped: 4, Lost: 10, KilledBefore: 2, Killed: 2, KilledSoon: 1,
}

// Open opens the bank. books is the file of its books.
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

// book does what it is asked for, or not.
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

// slow is how long a request takes beside the others that is slow.
const slow = 150 * time.Millisecond

// enter books a request, once for each key that it knows again.
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
		return "", http.StatusConflict // somebody was told that it has not happened, and can not any more
	case q.Sent < b.closed[q.Operation+" "+q.Step]:
		return "", http.StatusConflict // a person was told so
	}
	b.receipts++
	receipt = fmt.Sprint("receipt ", b.receipts)
	b.known[q.Key], b.steps[q.Operation+" "+q.Step] = receipt, receipt
	b.note(q, receipt, true)
	return receipt, http.StatusOK
}

// ask tells the outcome of a key. What was not booked by now, under that key, is refused from here on, unless its sender
// knows of this answer.
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

// lookUp tells a person what is in the books. What is not there, and was sent before, is refused from here on.
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
