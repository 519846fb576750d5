package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/idem-go/idem/example/orders/bank"
	"github.com/idem-go/idem/idemclient"
)

// paidBy returns an order that is paid with card.
func paidBy(card string) order {
	o := teapots()
	o.Card = card
	return o
}

// bankLosesAnswer places an order whose charge gets no answer. The service cannot know whether the
// card was charged, and must repeat the call with the same key.
func bankLosesAnswer(ctx context.Context, s *stage) (string, error) {
	got, err := s.send(ctx, s.first, idemclient.NewKey(), paidBy(bank.CardLostAnswer))
	if err != nil {
		return "", err
	}
	entries, err := s.charges(ctx)
	if err != nil {
		return "", err
	}
	note := fmt.Sprintf("the bank was asked %d times for one charge", entries[0].Asked)
	if entries[0].Asked < 2 {
		err = errors.New("nothing was lost: " + note)
	}
	return note, errors.Join(err, got.expect(http.StatusCreated, false))
}

// killedInCharge kills an instance between a charge and its answer, and the customer does not
// retry. The other instance must resume the checkout, repeat the call with the same key, and
// confirm the order.
func killedInCharge(ctx context.Context, s *stage) (string, error) {
	key, order := idemclient.NewKey(), paidBy(bank.CardSlow)
	var latest, ours int32
	if err := s.pool.QueryRow(ctx, `SELECT coalesce(max(id), 0) FROM orders`).Scan(&latest); err != nil {
		return "", err
	}
	left, hangUp := context.WithCancel(ctx)
	defer hangUp()
	charge, answered, err := s.sendUntilCharged(left, key, order)
	hangUp()
	<-answered
	s.first.Kill()
	died := time.Now()
	if err != nil {
		return "", err
	}
	if err := s.waitForRow(ctx, s.pool, &ours, `SELECT (charge_id = $1)::integer FROM orders WHERE id > $2 LIMIT 1`, charge.ID, latest); err != nil {
		return "", fmt.Errorf("the order was not confirmed: %w", err)
	}
	took := time.Since(died)
	if ours != 1 {
		return "", errors.New("the order was confirmed for another charge")
	}
	again, err := s.send(ctx, s.second, key, order)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("confirmed %d ms after the crash", took.Milliseconds()), again.expect(http.StatusCreated, true)
}

// sendUntilCharged starts a call to the first instance. It returns when the bank has made the
// charge and has not answered yet. The channel receives the result of the call.
func (s *stage) sendUntilCharged(ctx context.Context, key string, o order) (bank.Entry, <-chan result, error) {
	answered := make(chan result, 1)
	before, err := s.charges(ctx)
	if err != nil {
		answered <- result{err: err}
		return bank.Entry{}, answered, err
	}
	go func() {
		got, err := s.send(ctx, s.first, key, o)
		answered <- result{got, err, time.Now()}
	}()
	charge, err := s.latestCharge(ctx, len(before))
	return charge, answered, err
}

// declined places an order with a card that the bank declines. The checkout must undo the
// reservation, and a retry must get the same refusal.
func declined(ctx context.Context, s *stage) (string, error) {
	key, order := idemclient.NewKey(), paidBy(bank.CardDeclined)
	refused, err1 := s.send(ctx, s.first, key, order)
	again, err2 := s.send(ctx, s.second, key, order)
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	return "the stock is given back", errors.Join(
		refused.expect(http.StatusPaymentRequired, false),
		again.expect(http.StatusPaymentRequired, true),
		again.sameAs(refused))
}
