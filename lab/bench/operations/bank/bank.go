// Package bank is the outside system that the operations of the benchmark call: an HTTP server that
// makes charges and counts them. It makes a charge as soon as the request arrives and delays only
// the answer. A caller that dies before the answer does not know whether it has charged.
package bank

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Attempt is one request for a charge that the bank has received.
type Attempt struct {
	At     time.Time
	Worker int
}

// Bank is an HTTP server that makes charges and counts them.
type Bank struct {
	URL string

	server  *http.Server
	delay   time.Duration
	keyless bool

	mu       sync.Mutex
	byKey    map[string]string    // the charge that was made under each key
	attempts map[string][]Attempt // by order id
	charges  map[string]int       // by order id
	held     chan struct{}        // if not nil, the answers to first attempts wait until this channel is closed
	spread   time.Duration        // maximum delay of each answer after Release
	arrived  chan struct{}        // receives a value after each attempt, to wake Await
}

// Open starts a bank on the loopback interface. The bank answers each request after delay. If
// keyless is true, it ignores the keys and makes a charge for every request.
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
	mux.HandleFunc("POST /charge/{order}", b.charge)
	b.server = &http.Server{Handler: mux}
	go b.server.Serve(listener)
	return b, nil
}

// Close stops the server and aborts the requests in progress.
func (b *Bank) Close() error { return b.server.Close() }

// Hold delays the answer to the first attempt of each order until Release is called.
func (b *Bank) Hold() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = make(chan struct{})
}

// Release ends Hold. The bank sends each delayed answer after a random time of at most spread.
func (b *Bank) Release(spread time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spread = spread
	close(b.held)
	b.held = nil
}

func (b *Bank) charge(w http.ResponseWriter, r *http.Request) {
	charge, held := b.enter(r)
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
	_, _ = io.WriteString(w, charge)
}

// enter records an attempt and makes the charge. If the key has a charge already, a bank that knows
// keys returns this charge instead. If held is not nil, the answer must wait until held is closed.
func (b *Bank) enter(r *http.Request) (charge string, held <-chan struct{}) {
	order, key := r.PathValue("order"), r.Header.Get("Idempotency-Key")
	worker, _ := strconv.Atoi(r.Header.Get("Worker"))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.attempts[order] = append(b.attempts[order], Attempt{time.Now(), worker})
	select {
	case b.arrived <- struct{}{}:
	default:
	}
	charge, known := b.byKey[key]
	if !known || b.keyless {
		b.charges[order]++
		charge = "charge " + strconv.Itoa(len(b.attempts[order])) + " of " + order
		b.byKey[key] = charge
	}
	if len(b.attempts[order]) > 1 {
		return charge, nil
	}
	return charge, b.held
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

// Books contains the total numbers of charges and of charged orders.
type Books struct {
	Orders  int // charged orders
	Twice   int // orders that were charged more than once
	Charges int
}

// Books returns the total numbers of charges and charged orders so far.
func (b *Bank) Books() Books {
	b.mu.Lock()
	defer b.mu.Unlock()
	books := Books{Orders: len(b.charges)}
	for _, n := range b.charges {
		books.Charges += n
		if n > 1 {
			books.Twice++
		}
	}
	return books
}

// Attempts returns the attempts by order id, sorted by the time of arrival.
func (b *Bank) Attempts() map[string][]Attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[string][]Attempt, len(b.attempts))
	for order, attempts := range b.attempts {
		all[order] = slices.Clone(attempts)
	}
	return all
}

// Await waits until done(attempts) returns true for the attempts so far, or until ctx ends.
func (b *Bank) Await(ctx context.Context, done func(map[string][]Attempt) bool) error {
	for !done(b.Attempts()) {
		select {
		case <-b.arrived:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Client sends requests for charges to a bank. It keeps its connections open.
type Client struct {
	url    string
	worker string
	http   http.Client
}

// NewClient returns a client that sends worker, the number of its process, with each request. The
// bank stores the number with the attempt.
func NewClient(url string, worker int) *Client {
	return &Client{url: url + "/charge/", worker: strconv.Itoa(worker), http: http.Client{
		Transport: &http.Transport{MaxIdleConns: 1000, MaxIdleConnsPerHost: 1000},
	}}
}

// Close closes the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Charge requests a charge for an order under a key and returns the name of the charge.
func (c *Client) Charge(ctx context.Context, order, key string) (charge string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+order, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("Worker", c.worker)
	res, err := c.http.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("bank: %s: %s", res.Status, answer)
	}
	return string(answer), err
}
