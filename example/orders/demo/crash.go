package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// atOnce is how soon after a crash an order has to go through. With a lease it would have to run out first.
const atOnce = time.Second

// killedInside kills an instance that has executed every statement of an order and has not sent COMMIT. The client asks the
// other instance, which has to place the order, and at once.
func killedInside(ctx context.Context, s *stage) (string, error) {
	key, order := newKey(), teapots()
	hold, err := s.hold(ctx, order.SKU)
	if err != nil {
		return "", err
	}
	defer hold.release()
	first := make(chan error, 1)
	go func() {
		_, err := s.send(ctx, s.first, key, order)
		first <- err
	}()
	err = s.freezeBeforeCommit(ctx, hold)
	s.first.kill()
	died := time.Now()
	switch answered := <-first == nil; {
	case err != nil:
		return "", err
	case answered:
		return "", errors.New("the instance answered before it was killed")
	}

	retry, err := s.send(ctx, s.second, key, order)
	if err != nil {
		return "", err
	}
	took := time.Since(died)
	if took > atOnce {
		return "", fmt.Errorf("the order went through %v after the crash, want at most %v", took, atOnce)
	}
	return fmt.Sprintf("placed %d ms after the crash", took.Milliseconds()), retry.expect(http.StatusCreated, false)
}

// freezeBeforeCommit freezes the first instance inside the transaction of the order that waits for the hold. Released, the
// row lets Postgres execute the last statement of the order, and nobody is there to go on.
func (s *stage) freezeBeforeCommit(ctx context.Context, hold *hold) error {
	backend, err := hold.waiter(ctx)
	if err != nil {
		return fmt.Errorf("no order got as far as its transaction: %w", err)
	}
	if err := s.first.freeze(); err != nil {
		return err
	}
	hold.release()
	if err := s.waitUntilIdle(ctx, backend); err != nil {
		return fmt.Errorf("the transaction is not open: %w", err)
	}
	return nil
}

// killedAfter loses the answer and the process that gave it. What is replayed has to come from the database.
func killedAfter(ctx context.Context, s *stage) (string, error) {
	key, order := newKey(), teapots()
	if err := s.lose(ctx, s.first, key, order); err != nil {
		return "", err
	}
	s.first.kill()
	if err := s.revive(ctx); err != nil {
		return "", err
	}
	retry, err := s.send(ctx, s.first, key, order)
	if err != nil {
		return "", err
	}
	return "", retry.expect(http.StatusCreated, true)
}
