package demo

import (
	"context"
	"fmt"
	"sync"
)

// act is one scenario of the demonstration: a fault and its expected outcome.
type act struct {
	name string
	want count
	play func(ctx context.Context, s *stage) (note string, err error)
}

// duplicates is the number of simultaneous requests in the first act.
const duplicates = 50

// acts are played in this order.
var acts = []act{
	{"50 duplicates at once, on two instances", count{attempts: duplicates, created: 1, replays: duplicates - 1}, storm},
	{"an answer lost on its way", count{attempts: 2, created: 1, replays: 1}, lostAnswer},
	{"the same key with another amount", count{attempts: 3, created: 1, replays: 1, refused: 1}, changedAmount},
	{"kill -9 inside the transaction", count{attempts: 2, created: 1}, killedInside},
	{"kill -9 after the commit", count{attempts: 2, created: 1, replays: 1}, killedAfter},
	{"the bank charges, its answer is lost", count{attempts: 1, created: 1, charges: 1}, bankLosesAnswer},
	{"kill -9 in the charge, no retry", count{attempts: 2, created: 1, charges: 1, replays: 1}, killedInCharge},
	{"the card is declined, sent twice", count{attempts: 2, replays: 1, refused: 1}, declined},
	{"kill -9 of the relay that has published", count{attempts: 2, created: 2}, killedRelay},
}

// count is the outcome of the attempts of an act. Each answer counts at most once: as a replay or
// as a refusal. The first answer to an order that was placed counts as neither.
type count struct {
	attempts int
	created  int // orders in the shop's database
	charges  int // charges in the bank's ledger
	replays  int
	refused  int
}

func (c count) String() string {
	return fmt.Sprintf("%d attempts, %d orders, %d charges, %d replays, %d refused", c.attempts, c.created, c.charges, c.replays, c.refused)
}

func (c count) plus(other count) count {
	return count{c.attempts + other.attempts, c.created + other.created, c.charges + other.charges,
		c.replays + other.replays, c.refused + other.refused}
}

// counter counts attempts and answers. Its methods are safe for concurrent use.
type counter struct {
	mu sync.Mutex
	count
}

func (c *counter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count = count{}
}

func (c *counter) countAttempt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempts++
}

func (c *counter) countAnswer(a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case a.replayed:
		c.replays++
	case a.status >= 400 && a.status < 500:
		c.refused++
	}
}
