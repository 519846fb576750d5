package outbox

import "sync"

// memory is what the calls of a Publisher may hold of payloads and headers, those of all destinations and streams of a relay together.
type memory struct {
	mu    sync.Mutex
	most  int  // octets
	used  int  // of these
	large bool // a message is in hand beside these, because it was too large
}

// load is what one call holds of it.
type load struct {
	octets, most int
	large        bool // it is one message, beside the octets
}

// shareOfMemory is which part of what is free a call may have, so that others have some as well.
const shareOfMemory = 32

// begin takes the first message of a call, if it leaves as much as it takes. One message of all is taken beside that, or a large one would wait
// for as long as others come.
func (m *memory) begin(octets int) (l load, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.leaves(octets):
		l = load{octets: octets, most: (m.most - m.used) / shareOfMemory}
		m.used += octets
	case m.large:
		return load{}, false
	default:
		l.large, m.large = true, true
	}
	return l, true
}

// add takes another message of a call.
func (m *memory) add(l *load, octets int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.large || l.octets+octets > l.most || !m.leaves(octets) {
		return false
	}
	l.octets, m.used = l.octets+octets, m.used+octets
	return true
}

// fits reports whether the first message of a call would be taken.
func (m *memory) fits(octets int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leaves(octets) || !m.large
}

// end gives back what a call has held.
func (m *memory) end(l load) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used, m.large = m.used-l.octets, m.large && !l.large
}

func (m *memory) leaves(octets int) bool { return octets <= (m.most-m.used)/2 }
