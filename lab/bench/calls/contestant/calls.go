package contestant

import "sync"

// calls hands a call to where it is executed, for contestants that only pass on a key.
type calls struct {
	mu sync.Mutex
	m  map[string]*pending
}

type pending struct {
	call     Call
	users    int
	executed bool
}

// put makes a call known until drop is called as often. What it returns tells, once, whether the
// call was executed.
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

// of returns the call, which is about to be executed.
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
