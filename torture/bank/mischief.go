package bank

import (
	"net/http"
	"time"
)

// mischief is what goes wrong with one request.
type mischief struct {
	slow                          time.Duration // before it books, and as long after
	refuses, drops                bool          // before it books
	loses                         bool          // its answer
	killsBefore, kills, killsSoon bool          // whoever has called: before it books, after, and about when it is told
}

// mischief draws what goes wrong next.
func (b *Bank) mischief() (m mischief) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rng
	switch n := r.IntN(20); {
	case n < 6:
		m.slow = time.Duration(r.IntN(20)) * time.Millisecond
	case n < 8:
		m.slow = time.Duration(r.IntN(200)) * time.Millisecond
	case n == 8:
		m.slow = time.Duration(r.IntN(1000)) * time.Millisecond
	}
	if b.calm.Load() {
		return m
	}
	switch n := r.IntN(100); {
	case n < 8:
		m.refuses = true
	case n < 12:
		m.drops = true
	case n < 22:
		m.loses = true
	case n < 24:
		m.killsBefore = true
	case n < 26:
		m.kills = true
	case n < 27:
		m.killsSoon = true
	}
	return m
}

// before reports whether the bank goes on to book.
func (m *mischief) before(w http.ResponseWriter, q *Request, kill func(int, string)) bool {
	time.Sleep(m.slow)
	switch {
	case m.killsBefore:
		kill(q.Slot, "before the bank books")
		lose(w)
	case m.refuses:
		http.Error(w, "not now", http.StatusServiceUnavailable)
	case m.drops:
		lose(w)
	default:
		return true
	}
	return false
}

// after reports whether the caller is told.
func (m *mischief) after(q *Request, kill func(int, string)) bool {
	time.Sleep(m.slow)
	if m.kills || m.killsSoon {
		then := func() { kill(q.Slot, "after the bank has booked") }
		if m.killsSoon {
			time.AfterFunc(2*time.Millisecond, then)
			return true
		}
		then()
	}
	return !m.loses && !m.kills
}
