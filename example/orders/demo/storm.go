package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/idem-go/idem/example/orders/process"
	"github.com/idem-go/idem/idemclient"
)

// storm sends the same order 50 times at once, half of them to each instance. This models an
// impatient user, a retrying proxy, and a queue that delivers twice. A lock on the stock keeps the
// first order from finishing before the others have been sent.
func storm(ctx context.Context, s *stage) (string, error) {
	order, key := teapots(), idemclient.NewKey()
	lock, err := s.lock(ctx, order.SKU)
	if err != nil {
		return "", err
	}
	defer lock.release()
	var sending sync.WaitGroup
	var answers [duplicates]answer
	var failed [duplicates]error
	for n := range duplicates {
		to := []*process.Process{s.first, s.second}[n%2]
		sending.Go(func() { answers[n], failed[n] = s.send(ctx, to, key, order) })
	}
	_, err = lock.waiter(ctx)
	lock.release()
	sending.Wait()
	if err != nil {
		return "", fmt.Errorf("no order reached its transaction: %w", err)
	}
	for n, a := range answers {
		if err := errors.Join(failed[n], a.expect(http.StatusCreated, a.replayed), a.sameAs(answers[0])); err != nil {
			return "", err
		}
	}
	return "the same bytes for all", nil
}
