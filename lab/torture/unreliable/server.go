package unreliable

import (
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/idem-go/idem/lab/torture/history"
)

// Server answers requests and writes its books.
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

// Open opens a server, which writes its books to the file books. It answers after Serve is called.
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

// Serve starts to answer requests with handler.
func (s *Server) Serve(handler http.Handler) {
	s.server.Handler = handler
	go func() { _ = s.server.Serve(s.listener) }()
}

// Address returns the address at which the server listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// KillBy sets the function that kills the worker in a slot. If it is nil, no worker is killed.
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

// Calm stops all failures. Requests may still be slow.
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

// Do executes the request do of the worker in slot, or fails before or after it. It returns whether
// the handler should write an answer.
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

// lose closes the connection without an answer.
func lose(w http.ResponseWriter) {
	if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
		conn.Close()
	}
}
