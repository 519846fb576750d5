// Command show moves a tenant between two databases while clients place orders, and checks the
// books. Run it with `make fleet`.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/example/fleet"
	"github.com/idem-go/idem/example/fleet/scene"
)

func main() {
	moves := flag.Int("moves", 2, "how often the tenant moves, there and back")
	keys := flag.Int("keys", 100_000, "how many keys the tenant has")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *moves, *keys); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, moves, keys int) error {
	west, err := create(ctx, "west")
	if err != nil {
		return err
	}
	defer west.Pool.Close()
	east, err := create(ctx, "east")
	if err != nil {
		return err
	}
	defer east.Pool.Close()
	s, err := scene.Open(ctx, west, east, keys)
	if err != nil {
		return err
	}
	fmt.Printf("%s has %d keys in west, %s is at home in east, %d clients each\n", scene.Mover, keys, scene.Stays, scene.Clients)
	for range moves {
		var report fleet.Report
		b, err := s.Perform(ctx, func(ctx context.Context, _ *scene.Crowd) (err error) {
			report, err = s.Move(ctx, fleet.MoveConfig{})
			return err
		})
		if err != nil {
			return err
		}
		fmt.Printf("moved %d rows in %d rounds, pause %d ms; %d orders and %d bills, %d lost, %d doubled; no answer for %d ms\n",
			report.Rows, report.Rounds, report.Pause.Milliseconds(), b.Orders, b.Bills, b.Lost, b.Doubled, b.Silence.Milliseconds())
	}
	return s.Close()
}

// create creates a database on the server at DATABASE_URL. In this example, each database plays the
// part of a cluster.
func create(ctx context.Context, name string) (c fleet.Cluster, err error) {
	conn, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return c, err
	}
	defer conn.Close(ctx)
	database := fmt.Sprintf("%s_%d", name, time.Now().UnixNano())
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+database); err != nil {
		return c, err
	}
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		return c, err
	}
	config.ConnConfig.Database = database
	pool, err := pgxpool.NewWithConfig(ctx, config)
	return fleet.Cluster{Name: name, Pool: pool}, err
}
