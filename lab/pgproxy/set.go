package pgproxy

import (
	"slices"
	"sync"
	"sync/atomic"
)

// set is a list that is read at every message and changed a few times in a test: readers take no lock, and may change it
// while they go through it.
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
