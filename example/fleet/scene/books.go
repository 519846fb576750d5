package scene

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/example/fleet"
	"github.com/idem-go/idem/example/orders/bank"
)

// Books compare the answers that the clients received with the database and the bank.
type Books struct {
	Attempts, Orders, Charges, Bills int
	Lost, Doubled                    int
	Silence                          time.Duration // longest time without an answer
}

// ErrBroken means that a promise was not kept. Other errors mean that the fleet could not be run or
// read.
var ErrBroken = errors.New("a promise is broken")

// readBooks compares the answers of c with the orders, charges and bills. An order is lost if the
// home does not have it under the id in the answer. It is doubled if a request has several orders
// or charges. readBooks returns ErrBroken if something is lost, doubled, or in the wrong place.
func (s *Stage) readBooks(ctx context.Context, c *crowd) (b Books, err error) {
	charges, err := s.charges()
	if err != nil {
		return b, err
	}
	var wrong []string
	for _, tenant := range tenants {
		home, other, err := s.homes(ctx, tenant)
		if err != nil {
			return b, err
		}
		if err := billed(ctx, tenant, home, other); err != nil {
			return b, err
		}
		made, err := ordersOf(ctx, home, tenant)
		if err != nil {
			return b, err
		}
		b.Attempts += c.sent[tenant]
		b.Silence = max(b.Silence, c.silence[tenant])
		for request, told := range c.answers[tenant] {
			orders := made[request]
			b.Orders += len(orders)
			b.Doubled += max(0, len(orders)-1) + max(0, charges[request]-1)
			b.Charges += charges[request]
			if len(orders) == 0 || orders[0].ID != told {
				b.Lost++
			}
			for _, o := range orders {
				b.Bills += o.Bills
				if o.Bills != 1 || (o.Charge != "") != (charges[request] == 1) {
					wrong = append(wrong, fmt.Sprintf("an order of %s has %d bills and %d charges", tenant, o.Bills, charges[request]))
				}
			}
		}
		misplaced, err := clean(ctx, tenant, home, other)
		if err != nil {
			return b, err
		}
		wrong = append(wrong, misplaced...)
	}
	if b.Lost+b.Doubled > 0 {
		wrong = append(wrong, "something was lost or doubled")
	}
	if len(wrong) > 0 {
		err = fmt.Errorf("%w: %s", ErrBroken, strings.Join(wrong, "; "))
	}
	return b, err
}

type order struct {
	Request, ID, Charge string
	Bills               int
}

// ordersOf returns the orders of a tenant by request.
func ordersOf(ctx context.Context, home fleet.Cluster, tenant string) (map[string][]order, error) {
	rows, _ := home.Pool.Query(ctx, `SELECT o.request, o.id::text, o.charge, coalesce(b.Bills, 0)
		FROM orders o LEFT JOIN (SELECT customer, number, count(*) AS bills FROM bills WHERE tenant = $1 GROUP BY customer, number) b
		     ON b.customer = o.customer AND b.number = o.number
		WHERE o.tenant = $1 AND o.customer <> 'filled'`, tenant)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[order])
	made := map[string][]order{}
	for _, o := range all {
		made[o.Request] = append(made[o.Request], o)
	}
	return made, err
}

// charges returns the number of charges for each request.
func (s *Stage) charges() (map[string]int, error) {
	answer := httptest.NewRecorder()
	s.bank.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/charges", nil))
	var entries []bank.Entry
	if err := json.Unmarshal(answer.Body.Bytes(), &entries); err != nil {
		return nil, err
	}
	made := map[string]int{}
	for _, e := range entries {
		if !e.Declined {
			made[e.Reference]++
		}
	}
	return made, nil
}

// billed waits until no outbox has a message of the tenant.
func billed(ctx context.Context, tenant string, clusters ...fleet.Cluster) error {
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

// clean returns a description of everything that is in the wrong cluster or out of order.
func clean(ctx context.Context, tenant string, home, other fleet.Cluster) (wrong []string, err error) {
	for _, q := range []struct {
		in          fleet.Cluster
		what, query string
	}{
		{home, "bills out of order", `SELECT count(*) FROM bills WHERE tenant = $1 AND NOT in_order`},
		{home, "operations without an end", `SELECT count(*) FROM idem.operations WHERE starts_with(scope, $1 || '/') AND ended_at IS NULL`},
		{home, "dead letters", `SELECT count(*) FROM idem.dead_letters WHERE starts_with(consumer, $1 || '/')`},
		{other, "orders in the other cluster", `SELECT count(*) FROM orders WHERE tenant = $1`},
		{other, "keys in the other cluster", `SELECT count(*) FROM idem.records WHERE starts_with(scope, $1 || '/')`},
	} {
		var n int
		if err := q.in.Pool.QueryRow(ctx, q.query, tenant).Scan(&n); err != nil {
			return nil, err
		}
		if n != 0 {
			wrong = append(wrong, fmt.Sprintf("%s has %d %s", tenant, n, q.what))
		}
	}
	return wrong, nil
}

// forgetWaits deletes the recorded durations of calls.
func (c *crowd) forgetWaits() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits = map[string][]time.Duration{}
}

// wait returns the quantile share of the durations of a tenant's calls.
func (c *crowd) wait(tenant string, share float64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Clone(c.waits[tenant])
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(float64(len(all))*share))]
}
