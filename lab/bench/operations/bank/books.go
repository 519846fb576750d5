package bank

import (
	"context"
	"slices"
)

// Books are what a bank has seen.
type Books struct {
	Orders  int // that were charged
	Twice   int // of these, charged more than once
	Charges int
}

// Books returns what has been charged so far.
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

// Attempts returns all attempts by order, in the order of their arrival.
func (b *Bank) Attempts() map[string][]Attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[string][]Attempt, len(b.attempts))
	for order, attempts := range b.attempts {
		all[order] = slices.Clone(attempts)
	}
	return all
}

// Await returns when done is true of the attempts so far, or when ctx ends.
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
