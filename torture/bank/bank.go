package bank

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/torture/history"
	"github.com/idem-go/idem/torture/journal"
)

// Request is what is asked of the bank.
type Request struct {
	Key        string // under which it knows the request again
	Operation  string
	Step       string
	Safety     journal.Safety
	Generation int  // of an Asked one: how often its sender has asked what became of the key
	Declined   bool // the bank does not want to
	Process    uint32
	Slot       int
}

// Bank is the server.
type Bank struct {
	listener net.Listener
	server   *http.Server
	books    *history.Writer
	calm     atomic.Bool

	mu       sync.Mutex
	killer   func(slot int, when string)
	rng      *rand.Rand
	receipts int
	known    map[string]string // the receipts, by key
	steps    map[string]string // the receipts, by operation and step
	asked    map[string]int    // how often somebody has asked what became of a key
}

// Open opens the bank. books is the file of its books.
func Open(books string, seed uint64) (*Bank, error) {
	writer, err := history.Create(books)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &Bank{
		listener: listener, books: writer, rng: rand.New(rand.NewPCG(seed, 7)),
		known: map[string]string{}, steps: map[string]string{}, asked: map[string]int{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /book", b.book)
	mux.HandleFunc("POST /ask", b.ask)
	mux.HandleFunc("POST /look-up", b.lookUp)
	b.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = b.server.Serve(listener) }()
	return b, nil
}

// Address is where it listens.
func (b *Bank) Address() string { return b.listener.Addr().String() }

// KillBy says how the worker in a slot is killed, nil if none is to be.
func (b *Bank) KillBy(kill func(slot int, when string)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.killer = kill
}

func (b *Bank) kill(slot int, when string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.killer != nil {
		b.killer(slot, when)
	}
}

// Calm ends all that goes wrong there. It stays slow.
func (b *Bank) Calm() { b.calm.Store(true) }

// Close closes the bank and its books.
func (b *Bank) Close() error {
	_ = b.server.Close()
	return b.books.Close()
}

// book does what it is asked for, or not.
func (b *Bank) book(w http.ResponseWriter, r *http.Request) {
	var q Request
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	b.note(&q, "", false)
	m := b.mischief()
	if !m.before(w, &q, b.kill) {
		return
	}
	receipt, status := b.enter(&q)
	if !m.after(&q, b.kill) {
		lose(w)
		return
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(Reply{Receipt: receipt})
}

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
	}
	b.receipts++
	receipt = fmt.Sprint("receipt ", b.receipts)
	b.known[q.Key], b.steps[q.Operation+" "+q.Step] = receipt, receipt
	b.note(q, receipt, true)
	return receipt, http.StatusOK
}

// ask tells what became of a key. What was not booked by now, under that key, is refused from here on, unless its sender
// knows of this answer.
func (b *Bank) ask(w http.ResponseWriter, r *http.Request) {
	var q Request
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m := b.mischief()
	if !m.before(w, &q, b.kill) {
		return
	}
	b.mu.Lock()
	b.asked[q.Key]++
	receipt, done := b.known[q.Key]
	reply := Reply{Receipt: receipt, Done: done, Generation: b.asked[q.Key]}
	b.mu.Unlock()
	_ = json.NewEncoder(w).Encode(reply)
}

// lookUp tells a person what is in the books.
func (b *Bank) lookUp(w http.ResponseWriter, r *http.Request) {
	var q Request
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	receipt, done := b.steps[q.Operation+" "+q.Step]
	b.mu.Unlock()
	_ = json.NewEncoder(w).Encode(Reply{Receipt: receipt, Done: done})
}

func (b *Bank) note(q *Request, receipt string, booked bool) {
	b.books.Append(journal.Entry{
		At: history.Now(), Booked: booked, Key: q.Key, Operation: q.Operation, Step: q.Step, Receipt: receipt, Process: q.Process,
	})
}

// lose has the caller never learn what became of its request.
func lose(w http.ResponseWriter) {
	if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
		conn.Close()
	}
}
