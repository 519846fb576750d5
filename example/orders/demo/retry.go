package demo

import (
	"context"
	"errors"
	"net/http"

	"github.com/idem-go/idem/idemclient"
)

// lostAnswer places an order whose answer is lost. The retry must get the recorded answer.
func lostAnswer(ctx context.Context, s *stage) (string, error) {
	relay, err := s.newRelay(ctx, nil)
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

// changedAmount sends another order under the key of the first, as a faulty client would. The
// service must refuse it, and must still replay the first order.
func changedAmount(ctx context.Context, s *stage) (string, error) {
	key, order := idemclient.NewKey(), teapots()
	changed := order
	changed.AmountCents++
	placed, err1 := s.send(ctx, s.first, key, order)
	refused, err2 := s.send(ctx, s.first, key, changed)
	again, err3 := s.send(ctx, s.second, key, order)
	if err := errors.Join(err1, err2, err3); err != nil {
		return "", err
	}
	return "", errors.Join(
		placed.expect(http.StatusCreated, false),
		refused.expect(http.StatusUnprocessableEntity, false),
		again.expect(http.StatusCreated, true),
		again.sameAs(placed))
}

// soldOut orders a product that is out of stock. The rollback must remove the order and its ledger
// entry, which were inserted first. A retry must get the same refusal.
func soldOut(ctx context.Context, s *stage) (string, error) {
	key, order := idemclient.NewKey(), teapots()
	order.SKU = "samovar"
	refused, err1 := s.send(ctx, s.first, key, order)
	again, err2 := s.send(ctx, s.second, key, order)
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	return "", errors.Join(
		refused.expect(http.StatusUnprocessableEntity, false),
		again.expect(http.StatusUnprocessableEntity, true),
		again.sameAs(refused))
}
