// Package arenatest gives tests a server to let contestants meet on.
package arenatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/bench/arena"
	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/optional"
)

// Run runs the tests of a package beside a server, which they get from server. It is what TestMain does.
func Run(m *testing.M, server **arena.Server) (code int) {
	dir, err := os.MkdirTemp("", "idem-bench-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	started, err := start(dir, arena.Spec{Name: "test"})
	if _, missing := errors.AsType[optional.MissingError](err); err != nil && !missing {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err == nil {
		defer started.Close()
		*server = started
	}
	return m.Run()
}

func start(dir string, spec arena.Spec) (*arena.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := os.Chmod(dir, 0o755); err != nil { // the server runs as another user
		return nil, err
	}
	return arena.StartServer(ctx, dir, spec)
}

// Lane opens a lane to the server, closed when the test is over.
func Lane(t *testing.T, server *arena.Server, rtt time.Duration, counted bool) *arena.Lane {
	t.Helper()
	if server == nil {
		optional.Require(t, optional.Needs("postgres"))
	}
	lane, err := arena.NewLane(server, rtt, counted, 40)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lane.Close(); err != nil {
			t.Error(err)
		}
	})
	return lane
}

// Booth opens the contestant's place on a lane. A test on a machine without a program of the contestant is skipped.
func Booth(t *testing.T, lane *arena.Lane, c contestant.Contestant) *arena.Booth {
	t.Helper()
	booth, err := lane.Booth(t.Context(), c)
	optional.Require(t, err)
	return booth
}
