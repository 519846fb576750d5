package idemotel

import (
	"maps"
	"sync"
	"sync/atomic"
)

// cache keeps what is made once for each of few keys. To look something up takes no lock and no memory.
type cache[K comparable, V any] struct {
	mu   sync.Mutex
	made atomic.Pointer[map[K]V]
}

func (c *cache[K, V]) get(key K, make func(K) V) V {
	if made := c.made.Load(); made != nil {
		if value, ok := (*made)[key]; ok {
			return value
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := map[K]V{}
	if made := c.made.Load(); made != nil {
		if value, ok := (*made)[key]; ok {
			return value
		}
		next = maps.Clone(*made)
	}
	next[key] = make(key)
	c.made.Store(&next)
	return next[key]
}
