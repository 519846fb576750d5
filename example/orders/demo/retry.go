package demo

import (
	"context"
	"errors"
	"net/http"

	"github.com/idem-go/idem/idemclient"
)

// lostAnswer places an order whose answer is lost. The retry must get the recorded answer.
func lostAnswer(ctx context.Context, s *stage) (string, error) {
	return "", s.loseAnswer(ctx, func() error { return nil })
}

// loseAnswer places an order whose first answer is lost, and calls accident at that moment. The
// answer to the retry must be a replay.
func (s *stage) loseAnswer(ctx context.Context, accident func() error) error {
	network := &lossyNetwork{RoundTripper: direct(nil), accident: accident}
	got, err := s.customer(network).order(ctx, s.first.URL, idemclient.NewKey(), teapots())
	if err != nil {
		return err
	}
	return got.expect(http.StatusCreated, true)
}

// changedAmount sends an order, and then a changed order under the same key, as a faulty client
// would. The service must refuse the changed order, and must still replay the first order.
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
