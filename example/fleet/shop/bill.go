package shop

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/example/fleet"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
)

// biller stands in for a broker and a consumer. It handles each message in the home of its tenant,
// whichever cluster published it.
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

// bill handles one message in the home of its tenant. It returns an error unless the message was
// handled, now or earlier.
func (b biller) bill(ctx context.Context, m outbox.Message) error {
	var placed Placed
	if err := json.Unmarshal(m.Payload, &placed); err != nil {
		return err
	}
	return b.router.Do(ctx, placed.Tenant, func(ctx context.Context, home fleet.Cluster) error {
		incoming := inbox.Message{Source: m.Topic, ID: m.ID, Key: m.Key, Type: m.Type, Payload: m.Payload}
		out, err := inbox.Handle(ctx, home.Pool, idem.Scope(placed.Tenant, "billing"), incoming, func(tx pgx.Tx) error {
			return write(ctx, tx, m.ID, placed)
		}, inbox.WithRetention(24*time.Hour))
		switch {
		case err != nil:
			return err
		case out.State == inbox.Retry || out.State == inbox.Dead:
			return fmt.Errorf("shop: the order is not billed: %w", out.Err)
		}
		return nil
	})
}

// write inserts a bill. The column in_order says whether it directly follows the previous bill of
// the customer.
func write(ctx context.Context, tx pgx.Tx, message string, p Placed) error {
	_, err := tx.Exec(ctx, `WITH c AS (UPDATE customers SET billed = $3 WHERE tenant = $1 AND name = $2 RETURNING tenant)
		INSERT INTO bills (tenant, message, customer, number, in_order)
		SELECT $1, $4, $2, $3, $3 = 1 + (SELECT billed FROM customers WHERE tenant = $1 AND name = $2) FROM c`, p.Tenant, p.Customer, p.Number, message)
	return err
}
