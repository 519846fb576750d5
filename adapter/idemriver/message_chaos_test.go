package idemriver_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/idem-go/idem/adapter/idemriver"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/lab/pgtest"
)

// messagesOf returns a client that handles the messages of TestChaos_OfMessages.
func messagesOf(child *ledger.Child) (*river.Client[pgx.Tx], error) {
	w := messageWorker(child.Pool, func(tx pgx.Tx, _ *river.Job[idemriver.Message]) error { return ledger.Handle(tx) })
	return clientOf(child.Pool, w, child.Logger)
}

func relay(ctx context.Context, child *ledger.Child) error {
	client, err := messagesOf(child)
	if err != nil {
		return err
	}
	return child.Relay(ctx, idemriver.NewPublisher(client, idemriver.PublisherConfig{}))
}

func handleMessages(ctx context.Context, child *ledger.Child) error {
	client, err := messagesOf(child)
	if err != nil {
		return err
	}
	for client.Start(ctx) != nil { // the database may be unavailable
		time.Sleep(50 * time.Millisecond)
	}
	ledger.Ready()
	select {}
}

// The test rescues running jobs again and again, also jobs of live processes. River does so after
// RescueStuckJobsAfter.
func TestChaos_OfMessages(t *testing.T) {
	t.Parallel()
	pgtest.Long(t)
	dsn, pool := newDatabase(t)
	rescue := func(after string) error {
		_, err := pool.Exec(t.Context(), `UPDATE river_job SET state = 'available' WHERE id IN (SELECT id FROM river_job
			WHERE state = 'running' AND attempted_at < now() - $1::interval FOR UPDATE SKIP LOCKED)`, after) // River completes jobs in any order
		return err
	}
	chaos := ledger.Chaos{
		DSN: dsn, Topic: "orders", Unordered: true,
		Faults: func(every ledger.Every) []ledger.Fault {
			return []ledger.Fault{{Name: "running jobs rescued", Every: every(20), Inject: func() error { return rescue("0") }}}
		},
		Idle: func() (idle bool, err error) {
			if err = rescue("2 s"); err == nil {
				err = pool.QueryRow(t.Context(), `SELECT count(*) = 0 FROM river_job WHERE state NOT IN ('completed', 'cancelled')`).Scan(&idle)
			}
			return idle, err
		},
	}
	chaos.Run(t)
}
