package scene

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/idem-go/idem/idemclient"
)

// Clients is the number of clients of each tenant.
const Clients = 3

// Crowd has the clients of a scene, and the answers that they received.
type Crowd struct {
	shop    *Shop
	mu      sync.Mutex
	answers map[string]map[Order]string // id of each answered order, by tenant
	last    map[string]time.Time        // time of the last answer by tenant
	silence map[string]time.Duration    // the longest time without an answer by tenant
	failed  error
	stop    chan struct{}
	clients sync.WaitGroup
}

// newCrowd starts the clients.
func newCrowd(ctx context.Context, shop *Shop) *Crowd {
	c := &Crowd{
		shop: shop, answers: map[string]map[Order]string{}, last: map[string]time.Time{},
		silence: map[string]time.Duration{}, stop: make(chan struct{}),
	}
	for _, tenant := range tenants {
		c.answers[tenant], c.last[tenant] = map[Order]string{}, time.Now()
		for client := range Clients {
			c.clients.Go(func() { c.run(ctx, tenant, "customer-"+strconv.Itoa(client)) })
		}
	}
	return c
}

// run places orders one after another until the crowd stops. It sends a quarter of the orders again
// after the answer, like a client whose answer was lost.
func (c *Crowd) run(ctx context.Context, tenant, customer string) {
	for n := int64(0); ; n++ {
		select {
		case <-c.stop:
			return
		case <-time.After(10 * time.Millisecond):
		}
		o := Order{Tenant: tenant, Customer: customer, Request: idemclient.NewKey(), Cents: 100 + n%900}
		id, err := c.place(ctx, o)
		if err == nil && rand.IntN(4) == 0 {
			err = c.again(ctx, o, id)
		}
		c.mu.Lock()
		if c.failed == nil {
			c.failed = err
		}
		if err == nil {
			c.answers[tenant][o] = id
			c.silence[tenant] = max(c.silence[tenant], time.Since(c.last[tenant]))
			c.last[tenant] = time.Now()
		}
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// place places an order. It repeats the request with the same key until it has an answer.
func (c *Crowd) place(ctx context.Context, o Order) (string, error) {
	for {
		id, err := c.shop.Place(ctx, o)
		if err == nil {
			return id, nil
		}
		select {
		case <-ctx.Done():
			return "", errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// again sends an order again. It returns ErrBroken unless the new answer has the order id of the
// first answer.
func (c *Crowd) again(ctx context.Context, o Order, first string) error {
	id, err := c.place(ctx, o)
	if err == nil && id != first {
		err = fmt.Errorf("%w: the first answer has order %s, the second has order %s", ErrBroken, first, id)
	}
	return err
}

// Answered waits until each tenant has received the given number of further answers.
func (c *Crowd) Answered(ctx context.Context, more int) error {
	before, _ := c.count()
	for {
		now, err := c.count()
		enough := true
		for tenant, n := range now {
			enough = enough && n >= before[tenant]+more
		}
		if enough || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// count returns the number of answers by tenant, and the first error of a client.
func (c *Crowd) count() (map[string]int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := map[string]int{}
	for tenant, answers := range c.answers {
		n[tenant] = len(answers)
	}
	return n, c.failed
}

// leave stops the clients, waits for their current calls, and returns the first error of a client.
func (c *Crowd) leave() error {
	close(c.stop)
	c.clients.Wait()
	return c.failed
}
