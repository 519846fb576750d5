package idemotel

import (
	"maps"
	"sync"
	"sync/atomic"
)

// cache is a map for a small number of keys. Nothing is deleted from it. Lookups take no lock and
// allocate nothing, because each write replaces the whole map.
type cache[K comparable, V any] struct {
	mu   sync.Mutex
	made atomic.Pointer[map[K]V]
}

func (c *cache[K, V]) get(key K, make func(K) V) V {
	if value, ok := c.find(key); ok {
		return value
	}
	return c.add(key, make(key))
}

func (c *cache[K, V]) find(key K) (value V, ok bool) {
	if made := c.made.Load(); made != nil {
		value, ok = (*made)[key]
	}
	return value, ok
}

// add stores value and returns it. If another goroutine has already stored a value for the key, add
// returns the stored value.
func (c *cache[K, V]) add(key K, value V) V {
	c.mu.Lock()
	defer c.mu.Unlock()
	if added, ok := c.find(key); ok {
		return added
	}
	next := map[K]V{}
	if made := c.made.Load(); made != nil {
		maps.Copy(next, *made)
	}
	next[key] = value
	c.made.Store(&next)
	return value
}
