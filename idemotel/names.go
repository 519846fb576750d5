package idemotel

import "sync"

const (
	maxNames = 100
	other    = "_OTHER" // the label value for names beyond the limit, as in the semantic conventions
)

// names limits the number of distinct values of a label. Otherwise, a program that makes names from
// the input of clients would create a time series for each name.
type names struct {
	mu    sync.RWMutex
	known map[string]bool
}

// tell returns the label value for a name: the name itself for the first hundred names, and
// "_OTHER" for all later names.
func (n *names) tell(name string) string {
	n.mu.RLock()
	label, ok := n.find(name)
	n.mu.RUnlock()
	if ok {
		return label
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if label, ok := n.find(name); ok {
		return label
	}
	if n.known == nil {
		n.known = map[string]bool{}
	}
	n.known[name] = true
	return name
}

// find returns the label value for a name. If the name is new and the limit is not reached, ok is
// false, and the caller adds the name.
func (n *names) find(name string) (label string, ok bool) {
	switch {
	case n.known[name]:
		return name, true
	case len(n.known) >= maxNames:
		return other, true
	}
	return "", false
}
