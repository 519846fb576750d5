package outbox

import "sync"

// memory bounds the payloads and headers in memory of a Publisher with several destinations: of all of them, in all streams of a
// relay.
type memory struct {
	mu    sync.Mutex
	limit int  // octets
	used  int  // octets
	large *int // the destination that has a message beside the limit, by its own octets
}

// shareOfMemory says which part of what is free one destination may have.
const shareOfMemory = 32

// take takes the memory of a message for a destination that has its own octets already. One message of all is taken beside the limit, or a
// large one would wait for as long as others come.
func (m *memory) take(own *int, octets int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case *own == 0 && m.leaves(octets):
		m.used += octets
	case *own == 0 && m.large == nil && octets > 0:
		m.large = own
	case *own > 0 && m.large != own && m.leaves(octets) && *own+octets <= (m.limit-m.used+*own)/shareOfMemory:
		m.used += octets
	default:
		return false
	}
	*own += octets
	return true
}

// release gives back the memory of a message.
func (m *memory) release(own *int, octets int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*own -= octets
	if m.large == own && octets > 0 {
		m.large = nil
		return
	}
	m.used -= octets
}

// fits reports whether a destination that has nothing may take a message.
func (m *memory) fits(octets int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leaves(octets) || m.large == nil
}

func (m *memory) leaves(octets int) bool { return octets <= (m.limit-m.used)/2 }
