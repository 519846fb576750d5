package scene

import (
	"context"
	"errors"
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

// IsCommand reports whether args are those of a process that a Stage has started. The program must
// then call Command.
func IsCommand(args []string) bool { return len(args) > 0 && (args[0] == "serve" || args[0] == "move") }

// Command runs one process of a Stage: an instance of the service, or a Move.
func Command(ctx context.Context, args []string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch {
	case len(args) == 1 && args[0] == "serve":
		return serve(ctx)
	case len(args) == 3 && args[0] == "move":
		return move(ctx, fleet.Stage(args[1]), args[2])
	}
	return errors.New("there is no command of that name: serve, or move STAGE CLUSTER")
}

// These environment variables tell the processes of a Stage where the others are.
const (
	westVariable = "FLEET_WEST"
	eastVariable = "FLEET_EAST"
	bankVariable = "FLEET_BANK"
)

// clusters returns the two clusters of the environment.
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

// serve runs one instance of the service until ctx ends.
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

// move moves the tenant away from a cluster. When it reaches the stage until, it prints a line and
// waits to be killed.
func move(ctx context.Context, until fleet.Stage, from string) error {
	here, there, err := clusters()
	if err != nil {
		return err
	}
	if from == there.Name {
		here, there = there, here
	}
	_, err = fleet.Move(ctx, here, there, Mover, fleet.MoveConfig{Tables: shop.Tables, Progress: func(s fleet.Stage, _ int64) {
		if s == until {
			fmt.Println("listening on " + string(s))
			<-ctx.Done()
		}
	}})
	return err
}
