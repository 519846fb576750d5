package direct

import (
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
)

// Handler gives a message its effect, on tx. Its rules are those of inbox.Batch.
type Handler func(tx pgx.Tx, m inbox.Message) error

// ConsumerConfig changes a Consumer. The zero value works.
type ConsumerConfig struct {
	// Batch is how many messages share a transaction at most, 256 by default. There are fewer as long as handlers are slow.
	Batch int
	// Options are given to inbox.Batch. With inbox.WithLanes among them, several keys are handled side by side.
	Options []inbox.Option
	// Logger is told of dead letters. The default is slog.Default().
	Logger *slog.Logger
}

// target is who handles messages, where and how.
type target struct {
	pool   *pgxpool.Pool
	name   string
	handle Handler
	config ConsumerConfig
	size   size
}
