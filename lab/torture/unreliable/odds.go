package unreliable

import "time"

// act is what goes wrong with one request.
type act int

const (
	nothing    act = iota
	refuse         // before it is done
	drop           // before it is done
	loseAnswer     // after it was done
	killBefore     // whoever has called, before it is done
	kill           // after it was done
	killSoon       // about when it is told
)

// Odds are how often things go wrong, of so many requests.
type Odds struct {
	Stream                                                   uint64 // of the random numbers of a seed
	Slow                                                     []Slow // of twenty requests
	Of                                                       int
	Refused, Dropped, Lost, KilledBefore, Killed, KilledSoon int
}

// Slow is how many requests take up to so long before they are done, and as long after.
type Slow struct {
	Requests int
	Most     time.Duration
}

type trouble struct {
	slow time.Duration
	act  act
}

// draw draws what goes wrong next.
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
