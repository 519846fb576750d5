package outbox

import "sync"

// memory bounds the bytes of payloads and headers that a relay with a Divider has in memory, for
// all destinations and streams together.
type memory struct {
	mu    sync.Mutex
	limit int  // bytes
	used  int  // bytes
	large *int // points to the used bytes of the destination whose message exceeds the limit; nil if there is none
}

// memoryShare is a divisor: a destination with several messages in memory may use 1/memoryShare of
// the memory that the other destinations leave free.
const memoryShare = 32

// take reserves memory for a message of a destination, and reports whether it has succeeded. *own
// is the number of bytes that the destination uses. One message at a time may exceed the limit.
// Otherwise a large message would never find enough free memory while there are small ones.
func (m *memory) take(own *int, bytes int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case *own == 0 && m.hasHalfFree(bytes):
		m.used += bytes
	case *own == 0 && m.large == nil && bytes > 0:
		m.large = own
	case *own > 0 && m.large != own && m.hasHalfFree(bytes) && *own+bytes <= (m.limit-m.used+*own)/memoryShare:
		m.used += bytes
	default:
		return false
	}
	*own += bytes
	return true
}

// release frees the memory of a message.
func (m *memory) release(own *int, bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*own -= bytes
	if m.large == own && bytes > 0 {
		m.large = nil
		return
	}
	m.used -= bytes
}

// fits reports whether take would succeed for a destination that has no message in memory.
func (m *memory) fits(bytes int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hasHalfFree(bytes) || m.large == nil
}

// hasHalfFree reports whether a message of this size needs at most half of the free memory.
func (m *memory) hasHalfFree(bytes int) bool { return bytes <= (m.limit-m.used)/2 }
