package pgproxy

import (
	"slices"
	"sync"
	"sync/atomic"
)

// set is a copy-on-write list. Readers iterate at every message without a lock, and may change the
// list while they iterate. Writers are rare: a test changes the list a few times.
type set[T comparable] struct {
	mu   sync.Mutex
	list atomic.Pointer[[]T]
}

// all returns the elements in the order in which they were added.
func (s *set[T]) all() []T {
	if list := s.list.Load(); list != nil {
		return *list
	}
	return nil
}

func (s *set[T]) add(e T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := append(slices.Clone(s.all()), e)
	s.list.Store(&list)
}

func (s *set[T]) remove(e T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(s.all()), func(x T) bool { return x == e })
	s.list.Store(&list)
}
