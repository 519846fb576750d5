package bank

import (
	"context"
	"slices"
)

// Books are the totals of the bank.
type Books struct {
	Orders  int // charged orders
	Twice   int // orders with more than one charge
	Charges int
}

// Books returns the totals so far.
func (b *Bank) Books() Books {
	b.mu.Lock()
	defer b.mu.Unlock()
	var books Books
	for _, n := range b.charges {
		books.Orders++
		books.Charges += n
		if n > 1 {
			books.Twice++
		}
	}
	return books
}

// Attempts returns the attempts of each order in the order of their arrival.
func (b *Bank) Attempts() map[string][]Attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[string][]Attempt, len(b.attempts))
	for order, attempts := range b.attempts {
		all[order] = slices.Clone(attempts)
	}
	return all
}

// Await waits until done returns true for the attempts so far, or until ctx ends.
func (b *Bank) Await(ctx context.Context, done func(map[string][]Attempt) bool) error {
	for !done(b.Attempts()) {
		select {
		case <-b.arrived:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
