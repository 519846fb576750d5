package outboxtest

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/outbox"
)

// database adds an outbox to arrivals, with a pool for its database.
type database struct {
	*arrivals
	pool *pgxpool.Pool
}

func (a *arrivals) database(pool *pgxpool.Pool) *database { return &database{a, pool} }

func (o *database) add(messages ...outbox.Message) {
	o.t.Helper()
	ctx := o.t.Context()
	err := pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error { return outbox.Add(ctx, tx, messages...) })
	if err != nil {
		o.t.Fatalf("outboxtest: adding messages: %v", err)
	}
}

// relay runs a relay with short pauses until stop is called.
func (o *database) relay(p outbox.Publisher, config outbox.RelayConfig) (stop func()) {
	config.MinPause, config.MaxPause, config.Poll = time.Millisecond, 20*time.Millisecond, 50*time.Millisecond
	config.Drain = time.Millisecond
	config.Logger = slog.New(slog.NewTextHandler(o.t.Output(), nil))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- outbox.NewRelay(o.pool, p, config).Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			o.t.Errorf("outboxtest: the relay: %v", err)
		}
	})
}

// awaitEmpty waits until every message is published or dead-lettered.
func (o *database) awaitEmpty() {
	o.t.Helper()
	var waiting int
	for end := time.Now().Add(o.timeout); ; time.Sleep(10 * time.Millisecond) {
		figures, err := outbox.ReadStats(o.t.Context(), o.pool)
		if err != nil {
			o.t.Fatalf("outboxtest: %v", err)
		}
		if waiting = figures.Waiting + figures.Held; waiting == 0 {
			return
		}
		if time.Now().After(end) {
			o.t.Fatalf("%d messages are still in the outbox after %v", waiting, o.timeout)
		}
	}
}

func (o *database) dead() []outbox.DeadLetter {
	o.t.Helper()
	var letters []outbox.DeadLetter
	for letter, err := range outbox.List(o.t.Context(), o.pool, outbox.Ref{}) {
		if err != nil {
			o.t.Fatalf("outboxtest: %v", err)
		}
		letters = append(letters, letter)
	}
	return letters
}

// calls is a RelayObserver that sends a signal when a call has failed, completely or for some
// messages.
type calls struct{ failed chan struct{} }

func (c calls) TracePublished(_ context.Context, data outbox.TracePublishedData) {
	if data.Err != nil || data.Published < data.Given {
		select {
		case c.failed <- struct{}{}:
		default:
		}
	}
}
