package scene

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/idem-go/idem/example/fleet/shop"
	"github.com/idem-go/idem/example/orders/bank"
	"github.com/idem-go/idem/idemclient"
)

// crowd is the clients of a scene, and the answers that they received.
type crowd struct {
	instances func() []string // returns the URLs of the instances
	mu        sync.Mutex
	answers   map[string]map[string]string // order ids by tenant and key
	sent      map[string]int               // number of attempts by tenant
	last      map[string]time.Time         // time of the last answer by tenant
	silence   map[string]time.Duration     // the longest time without an answer by tenant
	waits     map[string][]time.Duration
	failed    error
	stop      chan struct{}
	clients   sync.WaitGroup
}

// Clients is the number of clients of each tenant.
const Clients = 3

// newCrowd starts the clients.
func newCrowd(ctx context.Context, instances func() []string) *crowd {
	c := &crowd{
		instances: instances, answers: map[string]map[string]string{}, sent: map[string]int{}, last: map[string]time.Time{},
		silence: map[string]time.Duration{}, waits: map[string][]time.Duration{}, stop: make(chan struct{}),
	}
	for _, tenant := range tenants {
		c.answers[tenant], c.last[tenant] = map[string]string{}, time.Now()
		for client := range Clients {
			c.clients.Go(func() { c.run(ctx, tenant, client) })
		}
	}
	return c
}

// run places orders one after another until the crowd stops. A quarter of the orders are repeated
// after the answer, as a client does whose answer was lost. The repeated answer must be the same.
func (c *crowd) run(ctx context.Context, tenant string, client int) {
	for n := 0; ; n++ {
		select {
		case <-c.stop:
			return
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
		o := shop.Order{Customer: "customer-" + strconv.Itoa(client), Request: idemclient.NewKey(), Cents: 100 + int64(n%900)}
		if n%4 == 0 {
			o.Card = bank.CardGood
		}
		began := time.Now()
		first, err := c.order(ctx, tenant, o)
		again := first
		if err == nil && rand.IntN(4) == 0 { // pretend that the answer was lost
			again, err = c.order(ctx, tenant, o)
		}
		c.mu.Lock()
		switch {
		case err != nil:
			c.failed = err
		case again != first:
			c.failed = fmt.Errorf("%w: a client was told of order %s, and then of %s", ErrBroken, first, again)
		default:
			c.answers[tenant][o.Request] = first
			c.waits[tenant] = append(c.waits[tenant], time.Since(began))
			c.silence[tenant] = max(c.silence[tenant], time.Since(c.last[tenant]))
			c.last[tenant] = time.Now()
		}
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// order places an order. It tries one instance after another with the same key until it has an
// answer.
func (c *crowd) order(ctx context.Context, tenant string, o shop.Order) (string, error) {
	path := "/orders"
	if o.Card != "" {
		path = "/checkouts"
	}
	body, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	for try := rand.IntN(8); ; try++ {
		instances := c.instances()
		c.mu.Lock()
		c.sent[tenant]++
		c.mu.Unlock()
		status, answer, err := post(ctx, instances[try%len(instances)]+"/"+tenant+path, o.Request, body)
		switch {
		case err == nil && status == http.StatusCreated:
			return answer, nil
		case err == nil && status < 500 && status != http.StatusConflict && status != http.StatusAccepted:
			return "", fmt.Errorf("answered %d: %s", status, answer)
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func post(ctx context.Context, url, key string, body []byte) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Idempotency-Key", key)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, string(answer), err
}

// answered waits until each tenant has more additional answers.
func (c *crowd) answered(ctx context.Context, more int) error {
	count := func() map[string]int {
		c.mu.Lock()
		defer c.mu.Unlock()
		n := map[string]int{}
		for tenant, answers := range c.answers {
			n[tenant] = len(answers)
		}
		return n
	}
	before := count()
	for {
		enough := true
		for tenant, n := range count() {
			enough = enough && n >= before[tenant]+more
		}
		c.mu.Lock()
		failed := c.failed
		c.mu.Unlock()
		if enough || failed != nil {
			return failed
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// leave stops the clients and waits for their current calls.
func (c *crowd) leave() error {
	close(c.stop)
	c.clients.Wait()
	return c.failed
}
