// Package runnertest provides a Postgres server that the tests of a package share.
package runnertest

import (
	"context"
	"os"
	"testing"

	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/bench/runner"
	"github.com/idem-go/idem/lab/optional"
)

var shared struct {
	server *runner.Server
	err    error
}

// Main starts a Postgres server with fsync=off, runs the tests of a package, stops the server and
// exits. Call it from TestMain.
func Main(m *testing.M) {
	shared.server, shared.err = runner.StartServer(context.Background(), "", runner.Spec{Volatile: true})
	code := m.Run()
	if shared.err == nil {
		if err := shared.server.Close(); err != nil {
			panic(err)
		}
	}
	os.Exit(code)
}

// Server returns the server that Main has started. On a machine without PostgreSQL, it skips the
// test.
func Server(t *testing.T) *runner.Server {
	t.Helper()
	optional.Require(t, shared.err)
	return shared.server
}

// Measure measures a scenario on the server that Main has started. It fails the test if a
// contestant fails.
func Measure(t *testing.T, sc runner.Scenario) result.Scenario {
	t.Helper()
	r := runner.Runner{Say: t.Logf}
	measured, err := r.Measure(t.Context(), Server(t), sc)
	if err != nil {
		t.Fatal(err)
	}
	return measured
}

// Find returns the scenario called name from the list of all scenarios. If there is none, Find
// fails the test.
func Find(t *testing.T, all []runner.Scenario, name string) runner.Scenario {
	t.Helper()
	for _, sc := range all {
		if sc.Name == name {
			return sc
		}
	}
	t.Fatalf("there is no scenario %q", name)
	return runner.Scenario{}
}
