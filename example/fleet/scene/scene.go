// Package scene plays events in a fleet of two clusters while clients place orders. Then it
// compares the orders and bills in the databases with the answers of the clients. `make fleet`
// plays a move of a tenant. The torture tests also play faults of the clusters.
package scene

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/example/fleet"
)

const (
	Mover = "acme"   // the tenant that moves; its first home is the first cluster
	Stays = "globex" // the tenant that stays in the second cluster
)

var tenants = []string{Mover, Stays}

// Stage is two clusters and an instance of the service.
type Stage struct {
	clusters [2]fleet.Cluster
	shop     *Shop
	stop     context.CancelFunc
	ended    chan error
}

// Open prepares two empty clusters, and starts an instance of the service. The tenant Mover gets
// rows of earlier requests with the given number of keys, so that a move has something to copy.
func Open(ctx context.Context, first, second fleet.Cluster, keys int) (*Stage, error) {
	s := &Stage{clusters: [2]fleet.Cluster{first, second}, shop: NewShop(slog.New(slog.DiscardHandler), first, second), ended: make(chan error, 1)}
	for i, c := range s.clusters {
		if err := errors.Join(Install(ctx, c), fleet.Place(ctx, c, tenants[i])); err != nil {
			return nil, err
		}
	}
	if err := Fill(ctx, first, Mover, keys); err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	go func() { s.ended <- s.shop.Run(run) }()
	return s, nil
}

// Close stops the service.
func (s *Stage) Close() error {
	s.stop()
	return <-s.ended
}

// Perform plays a scene and checks the books. The clients must receive answers before and after the
// scene.
func (s *Stage) Perform(ctx context.Context, play func(ctx context.Context, c *Crowd) error) (b Books, err error) {
	c := newCrowd(ctx, s.shop)
	if err = c.Answered(ctx, 10); err == nil {
		err = play(ctx, c)
	}
	if err == nil {
		err = c.Answered(ctx, 10)
	}
	if err = errors.Join(err, c.leave()); err == nil {
		err = Insist(ctx, func() (err error) { b, err = s.readBooks(ctx, c); return err })
	}
	return b, err
}

// Move moves the tenant Mover to the cluster that is not its home.
func (s *Stage) Move(ctx context.Context, config fleet.MoveConfig) (report fleet.Report, err error) {
	from, to, err := s.homes(ctx, Mover)
	if err != nil {
		return report, err
	}
	config.Tables = Tables
	err = Insist(ctx, func() (err error) { report, err = fleet.Move(ctx, from, to, Mover, config); return err })
	return report, err
}

// patience is how long Insist repeats a call, for example while a cluster has no leader.
const patience = 5 * time.Minute

// Insist calls ask until ask succeeds or fails for good. It repeats ask after a temporary error,
// such as that of a cluster without a leader.
func Insist(ctx context.Context, ask func() error) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		err := ask()
		passes := idem.Retryable(err) || errors.Is(err, fleet.ErrMoving) || errors.Is(err, fleet.ErrUnconfirmed)
		if !passes || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
	}
}

// homes returns the home of the tenant and the other cluster.
func (s *Stage) homes(ctx context.Context, tenant string) (home, other fleet.Cluster, err error) {
	err = Insist(ctx, func() (err error) { home, err = fleet.Home(ctx, s.clusters[:], tenant); return err })
	if other = s.clusters[0]; home.Name == other.Name {
		other = s.clusters[1]
	}
	return home, other, err
}

// Books compare the answers that the clients received with the database.
type Books struct {
	Orders, Bills, Lost, Doubled int
	Silence                      time.Duration // longest time without an answer
}

// ErrBroken means that a promise was not kept. Other errors mean that the fleet could not be run or
// read.
var ErrBroken = errors.New("a promise is broken")

// readBooks compares the answers of c with the orders and bills. An order is lost if the home does
// not have the order with the id in the answer. An order is doubled if the home has several orders
// of the same request. readBooks also repeats the request of each order that is not lost, and must
// get the same order id. readBooks returns ErrBroken if something is lost, doubled, or in the wrong
// place.
func (s *Stage) readBooks(ctx context.Context, c *Crowd) (b Books, err error) {
	wrong := map[string]int{}
	for _, tenant := range tenants {
		home, other, err := s.homes(ctx, tenant)
		if err != nil {
			return b, err
		}
		if err := delivered(ctx, tenant, home, other); err != nil {
			return b, err
		}
		b.Silence = max(b.Silence, c.silence[tenant])
		made, err := ordersOf(ctx, home, tenant)
		if err != nil {
			return b, err
		}
		for o, id := range c.answers[tenant] {
			ids := made[o.Request]
			b.Orders += len(ids)
			b.Doubled += max(0, len(ids)-1)
			if len(ids) == 0 || ids[0] != id {
				b.Lost++
				continue
			}
			if err := c.again(ctx, o, id); err != nil {
				return b, err
			}
		}
		for _, q := range []struct {
			in          fleet.Cluster
			what, query string
		}{
			{home, "orders without a bill", `SELECT count(*) FROM orders o WHERE tenant = $1 AND customer <> 'filled'
				AND NOT EXISTS (SELECT FROM bills b WHERE (b.tenant, b.customer, b.number) = (o.tenant, o.customer, o.number))`},
			{home, "bills twice", `SELECT count(*) - count(DISTINCT (customer, number)) FROM bills WHERE tenant = $1`},
			{home, "bills out of order", `SELECT count(*) FROM bills WHERE tenant = $1 AND NOT in_order`},
			{home, "dead letters", `SELECT count(*) FROM idem.dead_letters WHERE starts_with(consumer, $1 || '/')`},
			{other, "orders in the other cluster", `SELECT count(*) FROM orders WHERE tenant = $1`},
			{other, "keys in the other cluster", `SELECT count(*) FROM idem.records WHERE starts_with(scope, $1 || '/')`},
		} {
			var n int
			if err := q.in.Pool.QueryRow(ctx, q.query, tenant).Scan(&n); err != nil {
				return b, err
			}
			wrong[q.what] += n
		}
		var bills int
		if err := home.Pool.QueryRow(ctx, `SELECT count(*) FROM bills WHERE tenant = $1`, tenant).Scan(&bills); err != nil {
			return b, err
		}
		b.Bills += bills
	}
	wrong["orders lost"], wrong["orders doubled"] = b.Lost, b.Doubled
	for what, n := range wrong {
		if n != 0 {
			err = errors.Join(err, fmt.Errorf("%w: %d %s", ErrBroken, n, what))
		}
	}
	return b, err
}

// ordersOf returns the ids of a tenant's orders by request.
func ordersOf(ctx context.Context, home fleet.Cluster, tenant string) (map[string][]string, error) {
	rows, _ := home.Pool.Query(ctx, `SELECT request, id::text FROM orders WHERE tenant = $1`, tenant)
	made := map[string][]string{}
	var request, id string
	_, err := pgx.ForEachRow(rows, []any{&request, &id}, func() error {
		made[request] = append(made[request], id)
		return nil
	})
	return made, err
}

// delivered waits until no outbox has a message of the tenant.
func delivered(ctx context.Context, tenant string, clusters ...fleet.Cluster) error {
	for {
		left := 0
		for _, c := range clusters {
			var n int
			err := c.Pool.QueryRow(ctx, `SELECT count(*) FROM idem.outbox WHERE starts_with(aggregateid, $1)`, tenant+"/").Scan(&n)
			if err != nil {
				return err
			}
			left += n
		}
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d messages of %s are not delivered: %w", left, tenant, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
