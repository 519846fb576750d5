package direct

import (
	"sync"
	"time"
)

// size is how many messages share a transaction: few at first, and more as long as they take little of the time of a call, at the end of
// which nothing of a transaction is left that is not committed.
type size struct {
	mu   sync.Mutex
	now  int
	each time.Duration // that a message of the last transaction took
}

const (
	firstSize   = 16
	shareOfCall = 8
)

// of returns the size for a call that has so much time left, and at most so many messages. It is 0 if there is no time for any: what the end
// of the call cuts off is done in vain.
func (s *size) of(left time.Duration, most int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == 0 {
		s.now = firstSize
	}
	if left <= 0 {
		return 0
	}
	if s.each > 0 {
		most = min(most, int(left/s.each))
	}
	return min(s.now, most)
}

// took learns from a transaction.
func (s *size) took(messages int, took, ofCall time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.each = took / time.Duration(messages)
	switch {
	case took > ofCall/shareOfCall:
		s.now = max(messages/2, 1)
	case messages >= s.now:
		s.now = min(2*s.now, 10_000)
	}
}
