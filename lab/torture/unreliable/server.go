// Package unreliable is an HTTP server with injected failures. It is slow, refuses requests, drops
// requests or answers, and has the calling process killed.
package unreliable

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

// act is the way in which a request fails.
type act int

const (
	nothing    act = iota
	refuse         // answer 503 before the request is executed
	drop           // close the connection before the request is executed
	loseAnswer     // close the connection after the request was executed
	killBefore     // kill the caller before the request is executed
	kill           // kill the caller after the request was executed
	killSoon       // kill the caller about when it gets the answer
)

// Odds are the probabilities of failures: each number is how many of every Of requests fail in this
// way.
type Odds struct {
	Stream                                                   uint64 // selects the sequence of random numbers
	Slow                                                     []Slow // how many requests are slow, and how slow
	Of                                                       int
	Refused, Dropped, Lost, KilledBefore, Killed, KilledSoon int
}

// Slow makes some requests slow. Requests is how many of every twenty. Each of them is delayed by
// up to Most before its execution, and again afterwards.
type Slow struct {
	Requests int
	Most     time.Duration
}

// Server answers requests.
type Server struct {
	listener net.Listener
	mux      *http.ServeMux
	server   *http.Server
	odds     Odds

	mu     sync.Mutex
	rng    *rand.Rand
	calm   bool
	killer func(slot int)
}

// Open starts a server.
func Open(seed uint64, odds Odds) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	s := &Server{listener: listener, mux: mux, odds: odds, rng: rand.New(rand.NewPCG(seed, odds.Stream))}
	s.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: mux}
	go func() { _ = s.server.Serve(listener) }()
	return s, nil
}

// Address returns the address at which the server listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// KillBy sets the function that kills the worker in a slot. If the function is nil, no worker is
// killed.
func (s *Server) KillBy(kill func(slot int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killer = kill
}

func (s *Server) kill(slot int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.killer != nil {
		s.killer(slot)
	}
}

// Calm stops all failures. Requests may still be slow.
func (s *Server) Calm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calm = true
}

// Close closes the server.
func (s *Server) Close() { _ = s.server.Close() }

// Call is a request together with the slot of the worker that sends it.
type Call[Q any] struct {
	Slot int
	What Q
}

// Request is a kind of request, named by its path. Q is the type of the request, and R is the type
// of the answer.
type Request[Q, R any] string

// Handle makes the server execute the requests with the function do, which returns the answer and
// its HTTP status. The function first, which may be nil, is called for each request before anything
// can fail.
func (path Request[Q, R]) Handle(s *Server, first func(*Q), do func(*Q) (R, int)) {
	s.mux.HandleFunc("POST /"+string(path), func(w http.ResponseWriter, r *http.Request) {
		var call Call[Q]
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if first != nil {
			first(&call.What)
		}
		var reply R
		var status int
		if s.do(w, call.Slot, func() { reply, status = do(&call.What) }) {
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(reply)
		}
	})
}

// do executes a request from the worker in the slot, or fails before or after the execution. It
// reports whether the handler should write an answer.
func (s *Server) do(w http.ResponseWriter, slot int, do func()) (tell bool) {
	slow, fails := s.draw()
	time.Sleep(slow)
	switch fails {
	case killBefore:
		s.kill(slot)
		lose(w)
		return false
	case refuse:
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return false
	case drop:
		lose(w)
		return false
	}
	do()
	time.Sleep(slow)
	switch fails {
	case killSoon:
		time.AfterFunc(2*time.Millisecond, func() { s.kill(slot) })
	case kill:
		s.kill(slot)
		lose(w)
		return false
	case loseAnswer:
		lose(w)
		return false
	}
	return true
}

// draw returns the delay and the failure of the next request.
func (s *Server) draw() (slow time.Duration, fails act) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.rng.IntN(20)
	for _, o := range s.odds.Slow {
		if 0 <= n && n < o.Requests {
			slow = time.Duration(s.rng.Int64N(int64(o.Most)))
		}
		n -= o.Requests
	}
	if s.calm {
		return slow, nothing
	}
	n = s.rng.IntN(s.odds.Of)
	requests := []int{refuse: s.odds.Refused, drop: s.odds.Dropped, loseAnswer: s.odds.Lost, killBefore: s.odds.KilledBefore, kill: s.odds.Killed, killSoon: s.odds.KilledSoon}
	for i, of := range requests {
		if 0 <= n && n < of {
			fails = act(i)
		}
		n -= of
	}
	return slow, fails
}

func lose(w http.ResponseWriter) {
	if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
		conn.Close()
	}
}

// Client calls a server. It sends each request once, without retries.
type Client struct {
	address string
	slot    int
	client  http.Client
}

// NewClient returns a client of the server at address, for the worker in slot.
func NewClient(address string, slot int) *Client {
	const limit = 5 * time.Second
	return &Client{address, slot, http.Client{Timeout: limit, Transport: &http.Transport{DisableKeepAlives: true}}}
}

// StatusError is the status of an answer that is not OK.
type StatusError int

func (e StatusError) Error() string { return fmt.Sprintf("the other side answers %d", int(e)) }

// Send sends a request and returns its answer.
func (path Request[Q, R]) Send(ctx context.Context, c *Client, q Q) (reply R, err error) {
	encoded, err := json.Marshal(Call[Q]{c.slot, q})
	if err != nil {
		return reply, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.address+"/"+string(path), bytes.NewReader(encoded))
	if err != nil {
		return reply, err
	}
	resp, err := c.client.Do(r)
	if err != nil {
		return reply, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return reply, StatusError(resp.StatusCode)
	}
	return reply, json.NewDecoder(resp.Body).Decode(&reply)
}
