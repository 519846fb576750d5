package unreliable

import (
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/idem-go/idem/lab/torture/history"
)

// Server answers requests, and keeps books.
type Server struct {
	Books    *history.Writer
	listener net.Listener
	server   *http.Server
	odds     Odds

	mu     sync.Mutex
	rng    *rand.Rand
	calm   bool
	killer func(slot int, when string)
}

// Open opens a server, which answers once Serve was called. books is the file of its books.
func Open(books string, seed uint64, odds Odds) (*Server, error) {
	writer, err := history.Create(books)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{Books: writer, listener: listener, odds: odds, rng: rand.New(rand.NewPCG(seed, odds.Stream))}
	s.server = &http.Server{ReadHeaderTimeout: 10 * time.Second}
	return s, nil
}

// Serve has the handler answer.
func (s *Server) Serve(handler http.Handler) {
	s.server.Handler = handler
	go func() { _ = s.server.Serve(s.listener) }()
}

// Address is where it listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// KillBy says how the worker in a slot is killed, nil if none is to be.
func (s *Server) KillBy(kill func(slot int, when string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killer = kill
}

func (s *Server) kill(slot int, when string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.killer != nil {
		s.killer(slot, when)
	}
}

// Calm ends all that goes wrong there. It stays slow.
func (s *Server) Calm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calm = true
}

// Close closes the server and its books.
func (s *Server) Close() error {
	_ = s.server.Close()
	return s.Books.Close()
}

// Do does what the worker in a slot asks for, or not, and reports whether it is to be told what came of it.
func (s *Server) Do(w http.ResponseWriter, what string, slot int, do func()) (tell bool) {
	m := s.draw()
	time.Sleep(m.slow)
	switch m.act {
	case killBefore:
		s.kill(slot, "before "+what)
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
	time.Sleep(m.slow)
	switch m.act {
	case killSoon:
		time.AfterFunc(2*time.Millisecond, func() { s.kill(slot, "after "+what) })
	case kill:
		s.kill(slot, "after "+what)
		lose(w)
		return false
	case loseAnswer:
		lose(w)
		return false
	}
	return true
}

// lose has the caller never learn the outcome of its request.
func lose(w http.ResponseWriter) {
	if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
		conn.Close()
	}
}
