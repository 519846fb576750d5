package idemtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// theServer returns the Postgres server that all tests of this process share. The first call finds
// the server or starts one, which then runs until the process ends.
var theServer = sync.OnceValues(findServer)

// requireServer returns the Postgres server. If there is none, it skips the test, or fails the test
// if the environment variable CI is set.
func requireServer(t testing.TB) *server {
	t.Helper()
	s, err := theServer()
	switch {
	case err == nil:
	case errors.Is(err, errNoServer) && os.Getenv("CI") == "":
		t.Skip("idemtest: ", err)
	default:
		t.Fatal("idemtest: ", err)
	}
	return s
}

// errNoServer is returned by findServer if it can neither find nor start a server.
var errNoServer = errors.New("no PostgreSQL: set DATABASE_URL to a server whose role may create databases, " +
	"install PostgreSQL's programs, or start docker")

// findServer returns the server at DATABASE_URL. Without that variable it starts a server: with
// PostgreSQL's programs, or else with docker. If neither way works, it returns errNoServer with
// both causes, and the test may be skipped. If a server starts but does not answer, findServer
// returns another error, and the test fails.
func findServer() (*server, error) {
	if address := os.Getenv("DATABASE_URL"); address != "" {
		config, err := pgx.ParseConfig(address)
		if err != nil {
			return nil, fmt.Errorf("DATABASE_URL: %w", err)
		}
		return newServer(config), nil
	}
	var failures []error
	for _, start := range []func() (string, error){startLocal, startDocker} {
		address, err := start()
		if err != nil {
			failures = append(failures, err)
			continue
		}
		config, err := pgx.ParseConfig(address)
		if err == nil {
			err = await(config)
		}
		if err != nil {
			return nil, err
		}
		return newServer(config), nil
	}
	return nil, fmt.Errorf("%w (%w)", errNoServer, errors.Join(failures...))
}

// startLimit bounds the wait for a server that was started.
const startLimit = 2 * time.Minute

// await waits until the server accepts connections, for at most startLimit.
func await(config *pgx.ConnConfig) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for {
		conn, err := pgx.ConnectConfig(ctx, config)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server that was started does not answer: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
