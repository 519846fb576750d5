package unreliable

import "time"

// act is the failure of one request.
type act int

const (
	nothing    act = iota
	refuse         // before the request is executed
	drop           // before the request is executed
	loseAnswer     // after the request was executed
	killBefore     // kill the caller before the request is executed
	kill           // kill the caller after it was executed
	killSoon       // kill the caller about when it gets the answer
)

// Odds are the probabilities of failures: how many of Of requests fail in each way.
type Odds struct {
	Stream                                                   uint64 // of the random numbers
	Slow                                                     []Slow // of twenty requests
	Of                                                       int
	Refused, Dropped, Lost, KilledBefore, Killed, KilledSoon int
}

// Slow makes a number of requests slow: each takes up to Most before and after it is executed.
type Slow struct {
	Requests int
	Most     time.Duration
}

type trouble struct {
	slow time.Duration
	act  act
}

// draw returns the delay and the failure of the next request.
func (s *Server) draw() (m trouble) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.rng.IntN(20)
	for _, slow := range s.odds.Slow {
		if 0 <= n && n < slow.Requests {
			m.slow = time.Duration(s.rng.Int64N(int64(slow.Most)))
		}
		n -= slow.Requests
	}
	if s.calm {
		return m
	}
	n = s.rng.IntN(s.odds.Of)
	for _, o := range []struct {
		requests int
		act      act
	}{
		{s.odds.Refused, refuse}, {s.odds.Dropped, drop}, {s.odds.Lost, loseAnswer},
		{s.odds.KilledBefore, killBefore}, {s.odds.Killed, kill}, {s.odds.KilledSoon, killSoon},
	} {
		if 0 <= n && n < o.requests {
			m.act = o.act
		}
		n -= o.requests
	}
	return m
}
