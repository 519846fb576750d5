package bank

import (
	"crypto/rand"
	"errors"
	"slices"
	"sync"
)

// ledger has the entries of the bank. It is independent of the shop's database. A real bank would
// store an entry on disk before it answers.
type ledger struct {
	mu      sync.Mutex
	entries []*Entry
	byKey   map[string]*Entry
}

var errOtherCharge = errors.New("the key belongs to another charge")

// enter records a request and returns the entry of its key. The result first is true if this
// request has created the entry. enter returns errOtherCharge if the key belongs to another charge.
func (l *ledger) enter(key string, c Charge) (e Entry, first bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.byKey[key]
	if known == nil {
		first = true
		known = &Entry{ID: "ch-" + rand.Text()[:10], Declined: decide(c), Charge: c}
		l.byKey[key] = known
		l.entries = append(l.entries, known)
	}
	if known.Charge != c {
		return Entry{}, false, errOtherCharge
	}
	known.Asked++
	return *known, first, nil
}

// of returns the entries of a customer, newest first. An empty customer selects all entries.
func (l *ledger) of(customer string) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := []Entry{}
	for _, e := range slices.Backward(l.entries) {
		if customer == "" || e.Customer == customer {
			found = append(found, *e)
		}
	}
	return found
}
