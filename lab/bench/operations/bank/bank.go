// Package bank is the other system of an operation: an HTTP server that charges and keeps books. It
// charges when a request arrives and delays only the answer. A caller that dies in between leaves a
// charge in doubt.
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

// Request is the body of a charge request.
type Request struct {
	Order  string `json:"order"`
	Amount int64  `json:"amount"`
}

// Receipt is the response to a Request.
type Receipt struct {
	Charge string `json:"charge"`
}

// Attempt is a request that the bank has received.
type Attempt struct {
	At     time.Time
	Key    string
	Worker int
}

// Bank is an HTTP server with its books.
type Bank struct {
	URL string

	server  *http.Server
	delay   time.Duration
	keyless bool

	mu       sync.Mutex
	byKey    map[string]string    // charge by key
	attempts map[string][]Attempt // by order
	charges  map[string]int       // by order
	held     chan struct{}        // if not nil, first attempts wait until it is closed
	spread   time.Duration        // maximum additional delay of each held answer
	arrived  chan struct{}        // receives a token after each attempt
}

// Open starts a bank on the loopback interface that answers after delay. A keyless bank ignores the
// keys and charges every request.
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

// Close stops the server and aborts the requests that it holds.
func (b *Bank) Close() error { return b.server.Close() }

// Hold delays the answers to the first attempt of each order until Release.
func (b *Bank) Hold() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = make(chan struct{})
}

// Release sends the held answers, each after a random delay of at most spread.
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

// enter records an attempt. The channel, if not nil, is closed when the answer may be sent.
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
