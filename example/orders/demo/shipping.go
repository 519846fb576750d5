package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/idem-go/idem/idemclient"
)

// place places an order with a new key at the first instance and returns its id.
func (s *stage) place(ctx context.Context, o order) (id int64, err error) {
	got, err := s.send(ctx, s.first, idemclient.NewKey(), o)
	if err == nil {
		err = got.expect(http.StatusCreated, false)
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimPrefix(got.location, "/orders/"), 10, 64)
}

func (s *stage) waitUntilShipped(ctx context.Context, order int64) error {
	var found int32
	if err := s.waitForRow(ctx, s.fulfilmentDB, &found, `SELECT 1 FROM shipments WHERE order_id = $1 LIMIT 1`, order); err != nil {
		return fmt.Errorf("order %d is not shipped: %w", order, err)
	}
	return nil
}

// killedRelay kills both instances after a relay has published a message and before it deletes the
// message from the outbox. After the restart a relay publishes the message again, and fulfilment
// must recognize the duplicate.
//
// To reach that moment, killedRelay adds a trigger that makes every DELETE on the outbox wait for
// an advisory lock. The relay publishes and then blocks in its DELETE.
func killedRelay(ctx context.Context, s *stage) (string, error) {
	// Messages of earlier acts would block in the trigger first.
	if err := s.waitUntilPublished(ctx); err != nil {
		return "", err
	}
	_, err := s.pool.Exec(ctx, `
		CREATE FUNCTION public.stand_still() RETURNS trigger LANGUAGE plpgsql
		AS $$ BEGIN PERFORM pg_catalog.pg_advisory_xact_lock(1); RETURN NULL; END $$;
		CREATE TRIGGER stand_still BEFORE DELETE ON idem.outbox FOR EACH STATEMENT EXECUTE FUNCTION public.stand_still()`)
	if err != nil {
		return "", err
	}
	defer s.pool.Exec(context.WithoutCancel(ctx), `DROP FUNCTION IF EXISTS public.stand_still() CASCADE`)
	lock, err := s.lockBy(ctx, s.pool, `SELECT pg_advisory_xact_lock(1)`)
	if err != nil {
		return "", err
	}
	defer lock.release()
	order, err := s.place(ctx, teapots())
	if err != nil {
		return "", err
	}
	_, err = lock.waiter(ctx)
	if err = errors.Join(err, s.waitUntilShipped(ctx, order)); err != nil {
		return "", err
	}
	s.first.Kill()
	s.second.Kill()
	err = s.endRelaySessions(ctx)
	lock.release()
	var left int32
	if err := errors.Join(err, s.pool.QueryRow(ctx, `SELECT count(*) FROM idem.outbox`).Scan(&left)); err != nil {
		return "", err
	}
	if left == 0 {
		return "", errors.New("the outbox is empty, want the published message")
	}
	_, dropped := s.pool.Exec(ctx, `DROP FUNCTION public.stand_still() CASCADE`)
	if err := errors.Join(dropped, s.revive(ctx)); err != nil {
		return "", err
	}
	return "published twice, shipped once", s.shippedOnce(ctx, order)
}

func (s *stage) waitUntilPublished(ctx context.Context) error {
	var found int32
	if err := s.waitForRow(ctx, s.pool, &found, `SELECT 1 WHERE NOT EXISTS (SELECT FROM idem.outbox)`); err != nil {
		return fmt.Errorf("some messages are not published: %w", err)
	}
	return nil
}

// endRelaySessions ends the database sessions of the killed relays. Otherwise Postgres would still
// execute the DELETE that a relay has sent, and no relay would publish the message again.
func (s *stage) endRelaySessions(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, `
		SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
		WHERE application_name = 'idem relay' AND datname = current_database()`)
	return err
}

// shippedOnce returns an error unless the order has exactly one shipment. It first places another
// order of the same customer, and waits until that order is shipped. Messages of a customer are
// handled in order, so by then a duplicate would also have been handled.
func (s *stage) shippedOnce(ctx context.Context, order int64) error {
	next, err := s.place(ctx, teapots())
	if err = errors.Join(err, s.waitUntilShipped(ctx, next)); err != nil {
		return err
	}
	var n int
	err = s.fulfilmentDB.QueryRow(ctx, `SELECT count(*) FROM shipments WHERE order_id = $1`, order).Scan(&n)
	if err == nil && n != 1 {
		err = fmt.Errorf("order %d was shipped %d times", order, n)
	}
	return err
}
