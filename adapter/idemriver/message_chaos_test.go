package idemriver_test

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/idem-go/idem/adapter/idemriver"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
)

var messages = flag.Int("messages", 400, "number of messages of TestChaos")

const databaseOf = "IDEM_TEST_RIVER_DATABASE"

// relayOrConsume is the work of the processes of TestChaos_OfMessages.
func relayOrConsume(ctx context.Context, role string) error {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError + 1}))
	pool, err := pgxpool.New(ctx, os.Getenv(databaseOf))
	if err != nil {
		return err
	}
	client, err := messageClient(pool, func(tx pgx.Tx, job *river.Job[idemriver.Message]) error {
		return ledger.Handle(ctx, tx, job.Args.ID, job.Args.Key, job.Args.Payload, 50)
	}, logger)
	if err != nil {
		return err
	}
	if role == "relay" {
		ledger.Ready()
		return outbox.NewRelay(pool, idemriver.NewPublisher(client, idemriver.PublisherConfig{}),
			outbox.RelayConfig{Logger: logger, MinPause: 20 * time.Millisecond, MaxPause: time.Second}).Run(ctx)
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
	database, address := ledger.ProxyDSN(t, dsn)
	rescue := func(after string) error {
		_, err := pool.Exec(t.Context(), `UPDATE river_job SET state = 'available' WHERE id IN (SELECT id FROM river_job
			WHERE state = 'running' AND attempted_at < now() - $1::interval FOR UPDATE SKIP LOCKED)`, after) // River completes jobs in any order
		return err
	}
	chaos := ledger.Chaos{
		Messages: *messages, Topic: "orders", Pool: pool, Database: database, Env: []string{databaseOf + "=" + address},
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
	report := chaos.Run(t)
	report.Inversions = 0
	if err := report.Err(); err != nil {
		t.Error(err)
	}
}
