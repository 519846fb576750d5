package idemotel

import "sync"

const (
	maxNames = 100
	other    = "_OTHER" // the value of the semantic conventions for further values
)

// names limits the number of distinct values of a label. A program with names made from client
// input would otherwise create a time series for each.
type names struct {
	mu    sync.Mutex
	known map[string]bool
}

// tell returns the label value for a name: the name itself for the first maxNames names, and other
// for later ones.
func (n *names) tell(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.known[name]:
		return name
	case len(n.known) >= maxNames:
		return other
	case n.known == nil:
		n.known = map[string]bool{}
	}
	n.known[name] = true
	return name
}
