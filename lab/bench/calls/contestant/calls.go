package contestant

import "sync"

// calls passes a call to the function that executes it. Some contestants pass only a key to that
// function.
type calls struct {
	mu sync.Mutex
	m  map[string]*pending
}

type pending struct {
	call     Call
	users    int
	executed bool
}

// put registers a call until drop is called. Calls of put and drop for the same key must be
// balanced. executed reports whether the call was executed, and resets that mark.
func (c *calls) put(call Call) (executed func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = map[string]*pending{}
	}
	p := c.m[call.Key]
	if p == nil {
		p = &pending{call: call}
		c.m[call.Key] = p
	}
	p.users++
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		executed := p.executed
		p.executed = false
		return executed
	}
}

// of returns the call with key and marks it as executed.
func (c *calls) of(key string) Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.m[key]
	p.executed = true
	return p.call
}

func (c *calls) drop(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.m[key]; p.users > 1 {
		p.users--
		return
	}
	delete(c.m, key)
}
