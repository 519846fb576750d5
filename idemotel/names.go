package idemotel

import (
	"sync"
	"sync/atomic"
)

const (
	maxNames = 100
	other    = "_OTHER" // the value of the semantic conventions for further values
)

// names limits the number of distinct values of a label. A program with names made from client
// input would otherwise create a time series for each. Reads take no lock: the map is copied on
// each write.
type names struct {
	mu    sync.Mutex
	known atomic.Pointer[map[string]bool]
}

// tell returns the label value for a name: the name itself for the first maxNames names, and other
// for later ones.
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
