package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/idem-go/idem/example/orders/process"
	"github.com/idem-go/idem/idemclient"
)

// killedInside kills an instance that waits for a lock in the last statement of an order. The
// client retries at the other instance, which must place the order. The note says how long after
// the crash the order was placed. A design with leases would have to wait until the lease of the
// dead process expires.
func killedInside(ctx context.Context, s *stage) (string, error) {
	order := teapots()
	lock, err := s.lock(ctx, order.SKU)
	if err != nil {
		return "", err
	}
	answered := make(chan result, 1)
	go func() {
		got, err := s.customer(direct(inTurn(s.first, s.second))).order(ctx, s.first.URL, idemclient.NewKey(), order)
		answered <- result{got, err, time.Now()}
	}()
	_, err = lock.waiter(ctx)
	died := time.Now()
	s.first.Kill()
	lock.release()
	got := <-answered
	if err = errors.Join(err, got.err); err != nil {
		return "", err
	}
	took := got.at.Sub(died)
	return fmt.Sprintf("placed %d ms after the crash", took.Milliseconds()), got.answer.expect(http.StatusCreated, false)
}

// result is the outcome of a call and the time of its end.
type result struct {
	answer answer
	err    error
	at     time.Time
}

// inTurn returns a dialer that connects to the next instance each time. After the last instance was
// reached, it connects only to the last. It stands in for a load balancer.
func inTurn(instances ...*process.Process) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		next := instances[0].Address()
		if len(instances) > 1 {
			instances = instances[1:]
		}
		return new(net.Dialer).DialContext(ctx, network, next)
	}
}

// killedAfter discards the answer of an order and kills the process that gave it. The answer to the
// retry must come from the database.
func killedAfter(ctx context.Context, s *stage) (string, error) {
	return "", s.loseAnswer(ctx, func() error {
		s.first.Kill()
		return s.revive(ctx)
	})
}
