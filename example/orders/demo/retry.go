package demo

import (
	"context"
	"errors"
	"net/http"

	"github.com/idem-go/idem/idemclient"
)

// lostAnswer is the oldest trouble of all: the order is placed, and the client was not told.
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

// changedAmount uses a key for a second order, which is a mistake. The first order is none the worse for it.
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

// soldOut asks for what is not there. The order and its entry, written before that turned out, are undone, and the no is
// final.
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
