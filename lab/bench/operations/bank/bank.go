// Package bank is the other side of an operation: an HTTP server that charges, keeps books, and can
// be slow. It charges when a request arrives, and is slow only with its answer, which is when a
// caller that dies does not know what has happened.
package bank

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Request asks for one charge.
type Request struct {
	Order  string `json:"order"`
	Amount int64  `json:"amount"`
}

// Receipt is the answer.
type Receipt struct {
	Charge string `json:"charge"`
}

// Attempt is one request as the bank has seen it.
type Attempt struct {
	At     time.Time
	Key    string
	Worker int
}

// Bank is a server with its books.
type Bank struct {
	URL string

	server  *http.Server
	delay   time.Duration
	keyless bool

	mu       sync.Mutex
	byKey    map[string]string    // charges, if keys are honoured
	attempts map[string][]Attempt // by order
	charges  map[string]int       // by order
	held     chan struct{}        // first attempts wait until it is closed, if it is there
	spread   time.Duration        // over which their answers are spread then
	arrived  chan struct{}        // holds a token after an attempt
}

// Open starts a bank on the loopback interface whose every answer takes delay. One that is keyless
// charges whatever it is asked for, as often as it is asked.
func Open(delay time.Duration, keyless bool) (*Bank, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &Bank{
		URL: "http://" + listener.Addr().String(), delay: delay, keyless: keyless, byKey: map[string]string{},
		attempts: map[string][]Attempt{}, charges: map[string]int{}, arrived: make(chan struct{}, 1),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charge", b.charge)
	b.server = &http.Server{Handler: mux}
	go b.server.Serve(listener)
	return b, nil
}

// Close ends the server, and every request that it still holds.
func (b *Bank) Close() error { return b.server.Close() }

// Hold makes the first attempt of each order wait for its answer until Release.
func (b *Bank) Hold() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = make(chan struct{})
}

// Release answers what is held, one after the other within spread.
func (b *Bank) Release(spread time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spread = spread
	close(b.held)
	b.held = nil
}

func (b *Bank) charge(w http.ResponseWriter, r *http.Request) {
	var asked Request
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	receipt, held := b.enter(r, asked)
	if held != nil {
		select {
		case <-held:
			b.mu.Lock()
			spread := b.spread
			b.mu.Unlock()
			pause(r.Context(), rand.N(spread+1))
		case <-r.Context().Done():
			return
		}
	}
	pause(r.Context(), b.delay)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(receipt)
}

// enter writes an attempt into the books. What it returns besides is closed when the answer may go.
func (b *Bank) enter(r *http.Request, asked Request) (Receipt, <-chan struct{}) {
	worker, _ := strconv.Atoi(r.Header.Get("Worker"))
	key := r.Header.Get("Idempotency-Key")
	b.mu.Lock()
	defer b.mu.Unlock()
	b.attempts[asked.Order] = append(b.attempts[asked.Order], Attempt{At: time.Now(), Key: key, Worker: worker})
	select {
	case b.arrived <- struct{}{}:
	default:
	}
	charge, known := b.byKey[key]
	if !known || b.keyless {
		b.charges[asked.Order]++
		charge = "charge " + strconv.Itoa(len(b.attempts[asked.Order])) + " of " + asked.Order
		b.byKey[key] = charge
	}
	if len(b.attempts[asked.Order]) > 1 {
		return Receipt{charge}, nil
	}
	return Receipt{charge}, b.held
}

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
