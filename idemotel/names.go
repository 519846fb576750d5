package idemotel

import (
	"sync"
	"sync/atomic"
)

const (
	maxNames = 100
	other    = "_OTHER" // as the semantic conventions call what is not told apart
)

// names bounds how many names of calls are told apart. A program has few; one that makes them from what clients send would
// otherwise have a time series for each.
type names struct {
	mu    sync.Mutex
	known atomic.Pointer[map[string]bool]
}

// tell returns the name that calls of this name are shown under.
func (n *names) tell(name string) string {
	known := n.known.Load()
	switch {
	case known != nil && (*known)[name]:
		return name
	case known != nil && len(*known) >= maxNames:
		return other
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	next := map[string]bool{name: true}
	if known = n.known.Load(); known != nil {
		if len(*known) >= maxNames && !(*known)[name] {
			return other
		}
		for name := range *known {
			next[name] = true
		}
	}
	n.known.Store(&next)
	return name
}
