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

// server is one running Postgres server from any source.
type server struct {
	url   string // address, with a role that may create databases
	what  string // description for the log
	saved string // directory made by pgserver's SaveData, or ""
	stop  func()
}

// source is one way to get a server.
type source struct {
	name  string
	start func(ctx context.Context, cfg config, dir *runDir) (*server, error)
}

// sources lists the sources in order of preference.
var sources = []source{
	{"url", startGiven},
	{"docker", startContainer},
	{"local", startLocal},
}

// errAbsent marks a source that this machine does not have. start does not report such a source.
var errAbsent = errors.New("not there")

// start returns a server from the first source that works. If cfg.only is set, start tries that
// source only.
func start(ctx context.Context, cfg config, dir *runDir) (*server, error) {
	var reasons []error
	for _, src := range sources {
		if cfg.only != "" && cfg.only != src.name {
			continue
		}
		srv, err := src.start(ctx, cfg, dir)
		if err == nil || cfg.only != "" || ctx.Err() != nil {
			return srv, err
		}
		// A source that failed is reported, even if the next one works: the tests then run against
		// another server than the person may expect.
		if !errors.Is(err, errAbsent) {
			say("not using %s: %s", src.name, oneLine(err))
			reasons = append(reasons, fmt.Errorf("%s: %w", src.name, err))
		}
	}
	return nil, errors.Join(append(reasons, optional.ErrNoDatabase)...)
}

// oneLine returns the first line of the error of a source that testenv does not use.
func oneLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// startGiven returns the server at IDEM_TEST_DATABASE_URL. testenv does not stop this server.
func startGiven(ctx context.Context, cfg config, _ *runDir) (*server, error) {
	if cfg.url == "" {
		return nil, fmt.Errorf("IDEM_TEST_DATABASE_URL is not set (%w)", errAbsent)
	}
	if err := waitReady(ctx, cfg.url, time.Minute, nil); err != nil {
		return nil, fmt.Errorf("the server at IDEM_TEST_DATABASE_URL: %w", err)
	}
	return &server{url: cfg.url, what: "IDEM_TEST_DATABASE_URL", stop: func() {}}, nil
}

// waitReady returns when the server answers a query. It fails after limit, or when gone is closed.
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
