package broker

import (
	"net/http"
	"time"
)

// mischief is what goes wrong with one request.
type mischief struct {
	slow                          time.Duration // before it does what it is asked for, and as long after
	refuses, drops                bool          // before
	loses                         bool          // its answer
	killsBefore, kills, killsSoon bool          // whoever has called: before, after, and about when it is told
}

// mischief draws what goes wrong next.
func (b *Broker) mischief() (m mischief) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rng
	switch n := r.IntN(20); {
	case n < 5:
		m.slow = time.Duration(r.IntN(10)) * time.Millisecond
	case n == 5:
		m.slow = time.Duration(r.IntN(200)) * time.Millisecond
	}
	if b.calm.Load() {
		return m
	}
	switch n := r.IntN(400); {
	case n < 8:
		m.refuses = true
	case n < 16:
		m.drops = true
	case n < 30:
		m.loses = true
	case n < 32:
		m.killsBefore = true
	case n < 34:
		m.kills = true
	case n < 35:
		m.killsSoon = true
	}
	return m
}

// before reports whether the broker goes on to do what it is asked for.
func (m *mischief) before(w http.ResponseWriter, what string, slot int, kill func(int, string)) bool {
	time.Sleep(m.slow)
	switch {
	case m.killsBefore:
		kill(slot, "before "+what)
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
func (m *mischief) after(what string, slot int, kill func(int, string)) bool {
	time.Sleep(m.slow)
	if m.kills || m.killsSoon {
		then := func() { kill(slot, "after "+what) }
		if m.killsSoon {
			time.AfterFunc(2*time.Millisecond, then)
			return true
		}
		then()
	}
	return !m.loses && !m.kills
}
