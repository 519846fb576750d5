package ledger

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
)

// The environment variables of a Child.
const (
	databaseOf = "IDEM_TEST_DATABASE"
	brokerOf   = "IDEM_TEST_BROKER"
	topicOf    = "IDEM_TEST_TOPIC"
)

// Env returns the environment of a Child.
func Env(database, broker, topic string) []string {
	return []string{databaseOf + "=" + database, brokerOf + "=" + broker, topicOf + "=" + topic}
}

// Child is a process that works until it is killed.
type Child struct {
	Pool          *pgxpool.Pool
	Broker, Topic string
	Logger        *slog.Logger // discards everything, because faults cause many warnings
}

// Quick is a short backoff of a consumer.
var Quick = inbox.WithBackoff(10*time.Millisecond, 50*time.Millisecond)

// Work does the work of this process if the process is a child, and then does not return. roles
// maps the role of a child to its work. TestMain calls Work.
func Work(roles map[string]func(ctx context.Context, c *Child) error) {
	name := os.Getenv(role)
	if name == "" {
		return
	}
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv(databaseOf))
	if err == nil {
		err = roles[name](ctx, &Child{pool, os.Getenv(brokerOf), os.Getenv(topicOf), slog.New(slog.DiscardHandler)})
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// Relay runs a relay from the outbox to publisher.
func (c *Child) Relay(ctx context.Context, publisher outbox.Publisher) error {
	Ready()
	config := outbox.RelayConfig{Logger: c.Logger, MinPause: 20 * time.Millisecond, MaxPause: time.Second}
	return outbox.NewRelay(c.Pool, publisher, config).Run(ctx)
}
