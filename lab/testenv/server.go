package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/optional"
)

// server is one running Postgres, wherever it came from.
type server struct {
	url   string // of a role that may create databases
	what  string // for people
	saved string // directory with the data of a server that has never run; "" if there is none
	stop  func()
}

// source is one way to come by a server.
type source struct {
	name  string
	start func(ctx context.Context, cfg config, dir *runDir) (*server, error)
}

// sources are in order of preference.
var sources = []source{
	{"url", startGiven},
	{"docker", startContainer},
	{"local", startLocal},
}

// errAbsent marks a source that this machine simply does not have: nothing went wrong.
var errAbsent = errors.New("not there")

// start returns the first server to be had, or the one that was insisted on.
func start(ctx context.Context, sources []source, cfg config, dir *runDir) (*server, error) {
	var reasons []error
	for _, src := range sources {
		if cfg.only != "" && cfg.only != src.name {
			continue
		}
		srv, err := src.start(ctx, cfg, dir)
		if err == nil || cfg.only != "" || ctx.Err() != nil {
			return srv, err
		}
		if !errors.Is(err, errAbsent) {
			say("not using %s: %s", src.name, oneLine(err))
			reasons = append(reasons, fmt.Errorf("%s: %w", src.name, err))
		}
	}
	return nil, errors.Join(append(reasons, optional.ErrNoDatabase)...)
}

// oneLine is enough of an error that does not stop us.
func oneLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// startGiven uses the server at the address in the environment.
func startGiven(ctx context.Context, cfg config, _ *runDir) (*server, error) {
	if cfg.url == "" {
		return nil, fmt.Errorf("IDEM_TEST_DATABASE_URL is not set (%w)", errAbsent)
	}
	if err := waitReady(ctx, cfg.url, time.Minute, nil); err != nil {
		return nil, fmt.Errorf("the server at IDEM_TEST_DATABASE_URL: %w", err)
	}
	return &server{url: cfg.url, what: "IDEM_TEST_DATABASE_URL", stop: func() {}}, nil
}

// waitReady returns when the server answers a query, and gives up after limit or when gone says that it has ended.
func waitReady(ctx context.Context, url string, limit time.Duration, gone <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := ping(ctx, url)
		if err == nil {
			return nil
		}
		select {
		case <-gone:
			return errors.New("it ended while starting")
		case <-ctx.Done():
			return fmt.Errorf("no answer within %v: %w", limit, err)
		case <-time.After(25 * time.Millisecond):
		}
	}
}

func ping(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.Ping(ctx)
}
