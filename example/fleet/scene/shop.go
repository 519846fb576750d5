package scene

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/example/fleet"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/migrations"
	"github.com/idem-go/idem/outbox"
)

//go:embed schema.sql
var schema string

//go:embed fill.sql
var fill string

// Tables are the tables that move with a tenant.
var Tables = []fleet.Table{
	{Name: "public.customers", Tenant: "tenant"}, {Name: "public.orders", Tenant: "tenant"}, {Name: "public.bills", Tenant: "tenant"},
}

// Install creates the schemas of idem, the shop and the fleet in a cluster.
func Install(ctx context.Context, c fleet.Cluster) error {
	if err := migrations.Up(ctx, c.Pool); err != nil {
		return err
	}
	if _, err := c.Pool.Exec(ctx, schema); err != nil {
		return err
	}
	return fleet.Install(ctx, c, Tables)
}

// Fill inserts rows of earlier requests of a tenant, with the given number of keys. Each key has an
// order and a handled message, and a tenth of the keys belong to operations.
func Fill(ctx context.Context, home fleet.Cluster, tenant string, keys int) error {
	_, err := home.Pool.Exec(ctx, fill, tenant, keys)
	return err
}

// Order is the content of a request. The field Request is the idempotency key, which the client
// chooses.
type Order struct {
	Tenant   string `json:"tenant"`
	Customer string `json:"customer"`
	Request  string `json:"request"`
	Cents    int64  `json:"cents"`
}

// Shop is a service whose tenants are spread over clusters. It takes orders, and writes a bill for
// each.
type Shop struct {
	clusters []fleet.Cluster
	router   *fleet.Router
	logger   *slog.Logger
}

// NewShop returns an instance of the service.
func NewShop(logger *slog.Logger, clusters ...fleet.Cluster) *Shop {
	return &Shop{clusters: clusters, router: fleet.NewRouter(clusters...), logger: logger}
}

// Place places an order in the home of its tenant and returns its id.
func (s *Shop) Place(ctx context.Context, o Order) (id string, err error) {
	hash := idem.HashBytes(fmt.Appendf(nil, "%s %d", o.Customer, o.Cents))
	err = s.router.Do(ctx, o.Tenant, func(ctx context.Context, home fleet.Cluster) error {
		scope := idem.Scope(o.Tenant, "POST /orders")
		result, err := idem.Do(ctx, home.Pool, scope, o.Request, hash, func(tx pgx.Tx) (idem.Response, error) {
			id, _ := idem.ExecutionID(tx)
			return idem.Response{Status: 201, Body: []byte(id)}, place(ctx, tx, id, o)
		})
		id = string(result.Body)
		return err
	})
	return id, err
}

// placed is the message about an order.
type placed struct {
	Tenant, Customer string
	Number           int
}

// place inserts an order and the message about it. It locks the row of the customer until the
// commit, so that the messages of a customer are published in the order of their numbers. The
// triggers, not place, check that the cluster is the home of the tenant.
func place(ctx context.Context, tx pgx.Tx, id string, o Order) error {
	p := placed{Tenant: o.Tenant, Customer: o.Customer}
	err := tx.QueryRow(ctx, `INSERT INTO customers (tenant, name, orders) VALUES ($1, $2, 1)
		ON CONFLICT (tenant, name) DO UPDATE SET orders = customers.orders + 1 RETURNING orders`, o.Tenant, o.Customer).Scan(&p.Number)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO orders (tenant, id, customer, number, request, cents) VALUES ($1, $2, $3, $4, $5, $6)`,
		o.Tenant, id, o.Customer, p.Number, o.Request, o.Cents)
	if err != nil {
		return err
	}
	payload, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return outbox.Add(ctx, tx, outbox.Message{Topic: "orders", Key: idem.Scope(o.Tenant, o.Customer), Type: "OrderPlaced", Payload: payload})
}

// Run relays the messages of every cluster until ctx ends.
func (s *Shop) Run(ctx context.Context) error {
	var running sync.WaitGroup
	failed := make([]error, len(s.clusters))
	for i, c := range s.clusters {
		running.Go(func() {
			failed[i] = outbox.NewRelay(c.Pool, biller{s.router}, outbox.RelayConfig{Logger: s.logger}).Run(ctx)
		})
	}
	running.Wait()
	return errors.Join(failed...)
}

// biller is an outbox.Publisher that writes the bills. It handles a message in the home of its
// tenant, even if the relay of another cluster publishes it.
type biller struct{ router *fleet.Router }

// Publish implements outbox.Publisher.
func (b biller) Publish(ctx context.Context, messages []outbox.Message) error {
	for _, m := range messages {
		if err := b.bill(ctx, m); err != nil {
			return outbox.RetryLater(err, 0)
		}
	}
	return nil
}

func (b biller) bill(ctx context.Context, m outbox.Message) error {
	var p placed
	if err := json.Unmarshal(m.Payload, &p); err != nil {
		return err
	}
	return b.router.Do(ctx, p.Tenant, func(ctx context.Context, home fleet.Cluster) error {
		incoming := inbox.Message{Source: m.Topic, ID: m.ID, Key: m.Key, Type: m.Type, Payload: m.Payload}
		out, err := inbox.Handle(ctx, home.Pool, idem.Scope(p.Tenant, "billing"), incoming, func(tx pgx.Tx) error {
			return write(ctx, tx, m.ID, p)
		}, inbox.WithRetention(24*time.Hour))
		if err == nil && (out.State == inbox.Retry || out.State == inbox.Dead) {
			err = fmt.Errorf("scene: the order is not billed: %w", out.Err)
		}
		return err
	})
}

// write inserts a bill. The column in_order says whether it directly follows the previous bill of
// the customer.
func write(ctx context.Context, tx pgx.Tx, message string, p placed) error {
	_, err := tx.Exec(ctx, `WITH c AS (UPDATE customers SET billed = $3 WHERE tenant = $1 AND name = $2 RETURNING tenant)
		INSERT INTO bills (tenant, message, customer, number, in_order)
		SELECT $1, $4, $2, $3, $3 = 1 + (SELECT billed FROM customers WHERE tenant = $1 AND name = $2) FROM c`, p.Tenant, p.Customer, p.Number, message)
	return err
}
