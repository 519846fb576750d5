package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/idem-go/idem/example/orders/process"
	"github.com/idem-go/idem/idemclient"
)

// placedID returns the id of the order that an answer tells of.
func (a answer) placedID() (int64, error) {
	if err := a.expect(http.StatusCreated, false); err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimPrefix(a.location, "/orders/"), 10, 64)
}

func (s *stage) place(ctx context.Context, to *process.Process, o order) (id int64, err error) {
	got, err := s.send(ctx, to, idemclient.NewKey(), o)
	if err != nil {
		return 0, err
	}
	return got.placedID()
}

// waitUntilShipped returns when there is a shipment of the order.
func (s *stage) waitUntilShipped(ctx context.Context, order int64) error {
	var found int32
	if err := s.waitForRow(ctx, s.fulfilmentDB, &found, `SELECT 1 FROM shipments WHERE order_id = $1 LIMIT 1`, order); err != nil {
		return fmt.Errorf("order %d is not shipped: %w", order, err)
	}
	return nil
}

// killedRelay kills every relay between publishing a message and removing it from the outbox: the one that works waits there for a
// lock, and fulfilment has the message. The next one publishes it again.
func killedRelay(ctx context.Context, s *stage) (string, error) {
	if err := s.waitUntilPublished(ctx); err != nil { // what is on its way from earlier acts would stand still first
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
	order, err := s.place(ctx, s.first, teapots())
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
		return "", errors.New("nothing is left in the outbox, want what was published")
	}
	_, dropped := s.pool.Exec(ctx, `DROP FUNCTION public.stand_still() CASCADE`)
	if err := errors.Join(dropped, s.revive(ctx)); err != nil {
		return "", err
	}
	return "published twice, shipped once", s.shippedOnce(ctx, order)
}

// waitUntilPublished returns when there is nothing in the outbox of the service.
func (s *stage) waitUntilPublished(ctx context.Context) error {
	var found int32
	if err := s.waitForRow(ctx, s.pool, &found, `SELECT 1 WHERE NOT EXISTS (SELECT FROM idem.outbox)`); err != nil {
		return fmt.Errorf("there are messages that are not published: %w", err)
	}
	return nil
}

// endRelaySessions ends the sessions of relays that were killed: a statement that Postgres has been sent is executed all the same.
func (s *stage) endRelaySessions(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, `
		SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
		WHERE application_name = 'idem relay' AND datname = current_database()`)
	return err
}

// shippedOnce returns an error unless there is one shipment of the order. It places another one, which comes behind whatever is still
// on its way for the same customer.
func (s *stage) shippedOnce(ctx context.Context, order int64) error {
	next, err := s.place(ctx, s.first, teapots())
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

// killedFulfilment kills fulfilment between its commit and its acknowledgement, which it cannot send because the broker is dead, too.
// The broker delivers again what was not acknowledged.
func killedFulfilment(ctx context.Context, s *stage) (string, error) {
	lock, err := s.lockBy(ctx, s.fulfilmentDB, `LOCK TABLE shipments IN SHARE ROW EXCLUSIVE MODE`)
	if err != nil {
		return "", err
	}
	defer lock.release()
	order, err := s.place(ctx, s.first, teapots())
	if err != nil {
		return "", err
	}
	if _, err := lock.waiter(ctx); err != nil {
		return "", fmt.Errorf("fulfilment was not told: %w", err)
	}
	s.broker.Kill()
	lock.release()
	err = s.waitUntilShipped(ctx, order)
	s.fulfilment.Kill()
	if err := errors.Join(err, s.revive(ctx)); err != nil {
		return "", err
	}
	return "delivered twice, shipped once", s.shippedOnce(ctx, order)
}

// poisoned orders more than fits into any parcel. Fulfilment cannot ship that, nor anything behind it for the same customer, until a
// person has seen to it. Other customers do not notice.
func poisoned(ctx context.Context, s *stage) (string, error) {
	large, small := teapots(), teapots()
	large.Quantity, large.AmountCents, large.credential, small.credential = 50, 50*4900, globex, globex
	stuck, err1 := s.place(ctx, s.first, large)
	behind, err2 := s.place(ctx, s.second, small)
	other, err3 := s.place(ctx, s.first, teapots())
	if err := errors.Join(err1, err2, err3); err != nil {
		return "", err
	}
	if err := s.waitUntilShipped(ctx, other); err != nil {
		return "", err
	}
	var shipped int
	if err := s.fulfilmentDB.QueryRow(ctx, `SELECT count(*) FROM shipments WHERE order_id IN ($1, $2)`, stuck, behind).Scan(&shipped); err != nil {
		return "", err
	}
	_, err := s.fulfilmentDB.Exec(ctx, `INSERT INTO parcels VALUES ('crate', 100) ON CONFLICT DO NOTHING`)
	if err := errors.Join(err, s.waitUntilShipped(ctx, stuck), s.waitUntilShipped(ctx, behind)); err != nil {
		return "", err
	}
	var inOrder bool
	err = s.fulfilmentDB.QueryRow(ctx, `
		SELECT (SELECT min(id) FROM shipments WHERE order_id = $1) < (SELECT min(id) FROM shipments WHERE order_id = $2)`,
		stuck, behind).Scan(&inOrder)
	if err == nil && (shipped > 0 || !inOrder) {
		err = fmt.Errorf("%d were shipped too early; in order: %t", shipped, inOrder)
	}
	return "only its own customer waits", err
}
