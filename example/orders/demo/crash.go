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

// killedInside kills an instance that has executed every statement of an order and has not sent
// COMMIT. The client retries at the other instance, which must place the order. The note says how
// long that took. A design with leases would have to wait until the lease of the dead process
// expires.
func killedInside(ctx context.Context, s *stage) (string, error) {
	order := teapots()
	lock, err := s.lock(ctx, order.SKU)
	if err != nil {
		return "", err
	}
	answered := make(chan result, 1)
	go func() {
		got, err := s.customer(inTurn(s.first, s.second)).order(ctx, s.first.URL, idemclient.NewKey(), order)
		answered <- result{got, err, time.Now()}
	}()
	err = s.freezeBeforeCommit(ctx, lock)
	lock.release()
	died := time.Now()
	s.first.Kill()
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

// inTurn returns a dialer that connects to the next instance each time, and stays with the last. It
// stands in for a load balancer.
func inTurn(instances ...*process.Process) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		next := instances[0].Address()
		if len(instances) > 1 {
			instances = instances[1:]
		}
		return new(net.Dialer).DialContext(ctx, network, next)
	}
}

// freezeBeforeCommit stops the first instance just before the COMMIT of an order. The order must be
// waiting for lock. freezeBeforeCommit first suspends the process and then releases the lock.
// Postgres executes the last statement of the order, but the process cannot send the COMMIT.
func (s *stage) freezeBeforeCommit(ctx context.Context, lock *lock) error {
	backend, err := lock.waiter(ctx)
	if err != nil {
		return fmt.Errorf("no order got as far as its transaction: %w", err)
	}
	if err := s.first.Freeze(); err != nil {
		return err
	}
	lock.release()
	if err := s.waitUntilIdle(ctx, backend); err != nil {
		return fmt.Errorf("the transaction is not open: %w", err)
	}
	return nil
}

// killedAfter discards the answer of an order and kills the process that gave it. The answer to the
// retry must come from the database.
func killedAfter(ctx context.Context, s *stage) (string, error) {
	relay, err := s.newRelay(ctx, func() error {
		s.first.Kill()
		return s.revive(ctx)
	})
	if err != nil {
		return "", err
	}
	defer relay.close()
	got, err := s.customer(nil).order(ctx, relay.url, idemclient.NewKey(), teapots())
	if err != nil {
		return "", err
	}
	return "", errors.Join(got.expect(http.StatusCreated, true), relay.lostCreated(ctx))
}
