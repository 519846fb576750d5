// Command show runs a small fleet on this machine, breaks it, moves a tenant, and counts: `make fleet`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/example/fleet"
	"github.com/idem-go/idem/example/fleet/shop"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	runs := flag.Int("runs", 1, "how often each scenario is played")
	keys := flag.Int("keys", 100_000, "how many keys the tenant has that moves")
	limit := flag.Duration("limit", 10*time.Minute, "for how long all of it may take")
	only := flag.String("only", "", "play only scenarios whose name has this in it")
	flag.Parse()
	switch flag.Arg(0) {
	case "":
		ctx, cancel := context.WithTimeout(ctx, *limit)
		defer cancel()
		return play(ctx, *runs, *keys, *only)
	case "serve":
		return serve(ctx)
	case "move":
		return move(ctx, fleet.Stage(flag.Arg(1)), flag.Arg(2))
	}
	return errors.New("there is no command of that name: serve, move, or none")
}

// The settings of the processes that are started here.
const (
	westVariable = "FLEET_WEST"
	eastVariable = "FLEET_EAST"
	bankVariable = "FLEET_BANK"
)

func clusters() (west, east fleet.Cluster, err error) {
	if west, err = open("west", os.Getenv(westVariable)); err == nil {
		east, err = open("east", os.Getenv(eastVariable))
	}
	return west, east, err
}

func open(name, dsn string) (fleet.Cluster, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return fleet.Cluster{}, err
	}
	config.MaxConns = 10
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	return fleet.Cluster{Name: name, Pool: pool}, err
}

// serve is one instance of the service.
func serve(ctx context.Context) error {
	west, east, err := clusters()
	if err != nil {
		return err
	}
	s, err := shop.New([]fleet.Cluster{west, east}, os.Getenv(bankVariable), slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second}
	fmt.Println("listening on http://" + listener.Addr().String())
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-ended
}

// move moves the tenant away from a cluster. At the stage it says so, and goes no further.
func move(ctx context.Context, until fleet.Stage, from string) error {
	here, there, err := clusters()
	if err != nil {
		return err
	}
	if from == there.Name {
		here, there = there, here
	}
	_, err = fleet.Move(ctx, here, there, mover, fleet.MoveConfig{Tables: shop.Tables, Progress: func(s fleet.Stage, _ int64) {
		if s == until {
			fmt.Println("listening on " + string(s))
			<-ctx.Done()
		}
	}})
	return err
}
